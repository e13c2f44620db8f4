/* The kernel of linear layers of the oneDNN backend. */
#ifndef HEED_ONEDNN_LINEAR_H
#define HEED_ONEDNN_LINEAR_H

#include "onednn.h"

extern const heed_linear_kernel heed_onednn_linear;

#endif
