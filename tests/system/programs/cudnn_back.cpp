// B24: the library behind cudnn_front.
extern "C" int cudnnCreate(void**) { return 42; }
