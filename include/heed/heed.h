/** @file
 * Heed: attention on CPUs. Everything that an engine needs; a backend's author reads backend.h.
 *
 *     heed_context *ctx;
 *     heed_context_create(NULL, &ctx);
 *     heed_attn_desc desc = { .struct_size = sizeof desc, .q_heads = 8, .kv_heads = 8,
 *                             .qk_dim = 64, .v_dim = 64, .q_type = HEED_F32, .k_type = HEED_F32,
 *                             .v_type = HEED_F32, .out_type = HEED_F32,
 *                             .max_batch = 1, .max_q_len = 512, .max_kv_len = 512 };
 *     heed_attn_args args = { .struct_size = sizeof args, .batch = 1, .q_len = 512, .kv_len = 512,
 *                             .q = { q, { 0, 512 * 64, 64, 1 } }, ... };
 *     if (heed_attention(ctx, &desc, &args) != HEED_OK)
 *         puts(heed_last_error());
 *
 * Structs  begin with struct_size, which the caller sets to their sizeof; what else is not used has to
 *          be zero. So a caller that was compiled against older or newer headers is understood: members
 *          that its struct lacks count as zero, and those that this library does not know have to be
 *          zero. Of a struct that a call fills it gets the members that both know, and zeros for the
 *          others. A size that no struct can have (no multiple of a size_t's, not above it, or above
 *          65536) is HEED_ERR_ABI. The few without a size (views, errors, rotary) are frozen.
 * Sizes    heads and dims are at most 2^20, rows and keys of a sequence at most 2^31 - 1.
 * Language C11 or C++17.
 * Errors   a status, and a sentence: in the args' error, or on the thread by heed_last_error.
 */
#ifndef HEED_HEED_H
#define HEED_HEED_H

#include "attention.h"
#include "cache.h"
#include "context.h"
#include "group.h"
#include "hadamard.h"
#include "layer.h"
#include "linear.h"
#include "masks.h"
#include "rotary.h"
#include "status.h"
#include "tensor.h"
#include "version.h"

#endif
