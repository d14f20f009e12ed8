"""How fast is it? One network on every runtime that is installed, in turns, on this machine.

    clock        takes turns: the time of each, and ratios round by round
    machine      cores to run on, and what others did on them meanwhile
    runtimes     a runtime: a network becomes a call; torch's two, and the engine in each precision
    onnxruntimes onnxruntime, in fp32 and int8
    openvinos    OpenVINO, in fp32 and int8
    comparison   all of them at one batch size and number of threads: a table, and a sentence about the engine
    masks        random zeros, in a pattern

Knows nothing of training. Rivals are imported when they are used: `pip install 'softprune[bench]'` brings them.
"""
