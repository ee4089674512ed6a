/* Only passes on: what standing in between costs by itself. */
#include "preload.h"
#define AROUND(op, fd, at, len, call) return call;
ALL
