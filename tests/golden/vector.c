/* Loads golden vectors from golden.json and the .npy files in golden.tar. */
#define _GNU_SOURCE
#include "vector.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

cJSON *vector_json(const char *path)
{
    cJSON *json = NULL;
    FILE *file = fopen(path, "rb");
    if (file && fseek(file, 0, SEEK_END) == 0) {
        long bytes = ftell(file);
        char *text = bytes > 0 ? malloc((size_t)bytes + 1) : NULL;
        rewind(file);
        if (text && fread(text, 1, (size_t)bytes, file) == (size_t)bytes) {
            text[bytes] = '\0';
            json = cJSON_Parse(text);
        }
        free(text);
    }
    if (file)
        fclose(file);
    if (!json)
        fprintf(stderr, "%s: cannot be read as JSON\n", path);
    return json;
}

/* Opens a file of golden.tar, which the caller has to close; NULL if it is missing. In the archive
 * each file has a block of 512 bytes, which begins with its name and holds its size in octal from
 * byte 124 on; its contents follow, in whole blocks. */
static FILE *open_member(const char *folder, const char *name)
{
    char path[1024], block[512];
    FILE *member = NULL;
    snprintf(path, sizeof path, "%s/golden.tar", folder);
    FILE *archive = fopen(path, "rb");
    while (archive && !member && fread(block, 1, sizeof block, archive) == sizeof block && *block) {
        const long bytes = strtol(block + 124, NULL, 8);
        if (strncmp(block, name, 100) == 0) {
            member = fmemopen(NULL, (size_t)bytes + 1, "w+"); /* it writes a zero at the end */
            for (long left = bytes; member && left > 0; left -= (long)sizeof block)
                if (fread(block, 1, sizeof block, archive) != sizeof block ||
                    !fwrite(block, left < 512 ? (size_t)left : sizeof block, 1, member))
                    break;
        } else if (fseek(archive, (bytes + 511) / 512 * 512, SEEK_CUR) != 0) {
            break;
        }
    }
    if (archive)
        fclose(archive);
    if (member)
        rewind(member);
    return member;
}

static int load_array(const char *folder, const cJSON *set, const char *name, heed_npy *array)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(set, name);
    const char *file = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "file"));
    heed_error why = {"it is not in golden.tar"};
    if (!file)
        return 0;
    FILE *member = open_member(folder, file);
    heed_status status = member ? heed_npy_read_from(member, file, array, &why) : HEED_ERR_INVALID;
    if (member)
        fclose(member);
    if (status != HEED_OK)
        fprintf(stderr, "%s: %s\n", file, why.text);
    return status == HEED_OK ? 0 : -1;
}

static int64_t integer(const cJSON *set, const char *name, int64_t otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(set, name);
    return cJSON_IsNumber(item) ? (int64_t)item->valuedouble : otherwise;
}

/* Reads options.q_offset or options.kv_len, one integer per sequence. Returns whether it is
 * there. */
static int per_sequence(const cJSON *options, const char *name, int32_t to[VECTOR_BATCH])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(options, name), *item;
    int b = 0;
    if (!list)
        return 0;
    cJSON_ArrayForEach(item, list)
    {
        if (b < VECTOR_BATCH)
            to[b++] = (int32_t)item->valuedouble;
    }
    return 1;
}

/* The view of an array of at most four dimensions, whose axes are aligned from the right and
 * repeated where the array has one or none. */
static heed_const_view view_of(const heed_npy *array)
{
    heed_const_view view = {array->data, {0, 0, 0, 0}};
    int64_t stride = 1;
    for (int d = array->n_dims - 1, to = 3; d >= 0 && to >= 0; d--, to--) {
        view.stride[to] = array->shape[d] == 1 ? 0 : stride;
        stride *= array->shape[d];
    }
    return view;
}

static reference_array reference_of(const heed_const_view *view, int type)
{
    reference_array array = {.data = view->data, .type = type};
    memcpy(array.stride, view->stride, sizeof array.stride);
    return array;
}

static void take_options(const cJSON *options, vector *v)
{
    const cJSON *scale = cJSON_GetObjectItemCaseSensitive(options, "scale");
    const cJSON *softcap = cJSON_GetObjectItemCaseSensitive(options, "softcap");
    heed_attn_desc *desc = &v->desc;
    reference_problem *r = &v->reference;
    r->scale = 1 / sqrt((double)desc->qk_dim);
    if (scale) {
        desc->features |= HEED_HAS_SCALE;
        desc->scale = (float)scale->valuedouble;
        r->scale = scale->valuedouble;
    }
    if (softcap) {
        desc->features |= HEED_HAS_SOFTCAP;
        desc->softcap = (float)softcap->valuedouble;
        r->softcap = softcap->valuedouble;
    }
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(options, "causal"))) {
        desc->features |= HEED_HAS_CAUSAL;
        r->causal = 1;
    }
    r->window_left = integer(options, "window_left", -1);
    r->window_right = integer(options, "window_right", -1);
    if (r->window_left >= 0 || r->window_right >= 0) {
        desc->features |= HEED_HAS_WINDOW;
        desc->window_left = r->window_left;
        desc->window_right = r->window_right;
    }
    desc->position = HEED_POS_TOP_LEFT;
    if (per_sequence(options, "q_offset", v->q_offsets)) {
        desc->position = HEED_POS_GIVEN;
        v->args.q_offsets = v->q_offsets;
        for (int b = 0; b < VECTOR_BATCH; b++)
            v->offset[b] = v->q_offsets[b];
        r->offset = v->offset;
    }
    if (per_sequence(options, "kv_len", v->kv_lens)) {
        desc->features |= HEED_HAS_LENS;
        v->args.kv_lens = r->kv_lens = v->kv_lens;
    }
}

static void take_shape(const cJSON *shape, vector *v)
{
    reference_problem *r = &v->reference;
    v->args.batch = v->desc.max_batch = r->batch = integer(shape, "batch", -1);
    v->args.q_len = v->desc.max_q_len = r->q_len = integer(shape, "q_len", -1);
    v->args.kv_len = v->desc.max_kv_len = r->kv_len = integer(shape, "kv_len", -1);
    r->q_heads = integer(shape, "q_heads", 0);
    r->kv_heads = integer(shape, "kv_heads", 0);
    r->qk_dim = integer(shape, "qk_dim", 0);
    r->v_dim = integer(shape, "v_dim", 0);
    v->desc.q_heads = (uint32_t)r->q_heads;
    v->desc.kv_heads = (uint32_t)r->kv_heads;
    v->desc.qk_dim = (uint32_t)r->qk_dim;
    v->desc.v_dim = (uint32_t)r->v_dim;
}

/* Takes the views of q, k and v. The v of MLA may be columns [first, end) of k's memory. */
static void take_views(const cJSON *inputs, vector *v, uint32_t type)
{
    const cJSON *columns =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(inputs, "v"), "columns");
    int reference_type = kit_reads_as(type);
    heed_attn_args *args = &v->args;
    reference_problem *r = &v->reference;
    args->q = view_of(&v->input[VECTOR_Q]);
    args->k = view_of(&v->input[VECTOR_K]);
    if (columns) {
        args->v = args->k;
        args->v.data =
            (const char *)args->k.data +
            (int64_t)columns->child->valuedouble * heed_npy_type_bytes(v->input[VECTOR_K].type);
    } else {
        args->v = view_of(&v->input[VECTOR_V]);
    }
    v->desc.q_type = v->desc.k_type = v->desc.v_type = type;
    r->q = reference_of(&args->q, reference_type);
    r->k = reference_of(&args->k, reference_type);
    r->v = reference_of(&args->v, reference_type);
    if (v->input[VECTOR_MASK].data) {
        v->desc.features |= HEED_HAS_MASK;
        args->mask = view_of(&v->input[VECTOR_MASK]);
        r->mask = reference_of(&args->mask, REFERENCE_BYTE);
    }
    if (v->input[VECTOR_BIAS].data) {
        v->desc.features |= HEED_HAS_BIAS;
        v->desc.bias_type = HEED_F32;
        args->bias = view_of(&v->input[VECTOR_BIAS]);
        r->bias = reference_of(&args->bias, REFERENCE_F32);
    }
    args->alibi_slope = r->alibi_slope = v->input[VECTOR_ALIBI].data;
    args->sink = r->sink = v->input[VECTOR_SINK].data;
    v->desc.features |= args->alibi_slope ? HEED_HAS_ALIBI : 0;
    v->desc.features |= args->sink ? HEED_HAS_SINK : 0;
}

/* Checks that every array has the type and the size that the shape of the problem asks for, since
 * the library and the oracle will read it accordingly. */
static int check_arrays(const vector *v, uint32_t type, int has_v)
{
    static const int held_as[] = {
        [HEED_F32] = HEED_NPY_F4, [HEED_F16] = HEED_NPY_F2, [HEED_BF16] = HEED_NPY_U2};
    const reference_problem *r = &v->reference;
    const int64_t queries = r->batch * r->q_heads * r->q_len, pairs = queries * r->kv_len;
    const int64_t keys = r->batch * r->kv_heads * r->kv_len;
    const int64_t count[VECTOR_INPUTS] = {queries * r->qk_dim, keys * r->qk_dim, keys * r->v_dim};
    const int64_t result[VECTOR_RESULTS] = {
        queries * r->v_dim, queries, pairs, pairs, pairs, pairs};
    for (int i = VECTOR_Q; i <= VECTOR_V; i++)
        if ((i != VECTOR_V || has_v) &&
            (v->input[i].type != held_as[type] || v->input[i].count != count[i]))
            return -1;
    for (int i = VECTOR_MASK; i < VECTOR_INPUTS; i++)
        if (v->input[i].data && v->input[i].type != (i == VECTOR_MASK ? HEED_NPY_B1 : HEED_NPY_F4))
            return -1;
    for (int i = 0; i < VECTOR_RESULTS; i++)
        if (v->expected[i].data &&
            (v->expected[i].type != HEED_NPY_F4 || v->expected[i].count != result[i]))
            return -1;
    return r->batch <= VECTOR_BATCH && v->expected[VECTOR_OUT].data && v->expected[VECTOR_LSE].data
               ? 0
               : -1;
}

int vector_load(const char *folder, const cJSON *json, vector *v)
{
    static const char *const input[VECTOR_INPUTS] = {"q",    "k",           "v",   "mask",
                                                     "bias", "alibi_slope", "sink"};
    static const char *const result[VECTOR_RESULTS] = {"out", "lse",        "weights",
                                                       "raw", "softcapped", "biased"};
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(json, "inputs");
    const cJSON *expected = cJSON_GetObjectItemCaseSensitive(json, "expected");
    const char *dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "dtype"));
    memset(v, 0, sizeof *v);
    v->name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "name"));
    v->desc.struct_size = sizeof v->desc;
    v->args.struct_size = sizeof v->args;
    if (!v->name || !dtype) {
        fprintf(stderr, "a case lacks its name or dtype\n");
        return -1;
    }
    uint32_t type = strcmp(dtype, "f32") == 0   ? HEED_F32
                    : strcmp(dtype, "f16") == 0 ? HEED_F16
                                                : HEED_BF16;
    int failed = 0;
    for (int i = 0; i < VECTOR_INPUTS && !failed; i++)
        failed = load_array(folder, inputs, input[i], &v->input[i]);
    for (int i = 0; i < VECTOR_RESULTS && !failed; i++)
        failed = load_array(folder, expected, result[i], &v->expected[i]);
    if (failed)
        return -1;
    take_shape(cJSON_GetObjectItemCaseSensitive(json, "shape"), v);
    take_options(cJSON_GetObjectItemCaseSensitive(json, "options"), v);
    take_views(inputs, v, type);
    if (check_arrays(v, type, v->input[VECTOR_V].data != NULL) == 0)
        return 0;
    fprintf(stderr, "%s: its arrays are not what its shape says\n", v->name);
    return -1;
}

void vector_free(vector *v)
{
    for (int i = 0; i < VECTOR_INPUTS; i++)
        heed_npy_free(&v->input[i]);
    for (int i = 0; i < VECTOR_RESULTS; i++)
        heed_npy_free(&v->expected[i]);
}
