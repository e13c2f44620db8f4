/* Reads weights in the safetensors format. The file is not trusted: no byte outside it is ever
 * read. */
#include "safetensors.h"

#include <heed/kit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bytes;
    uint32_t type;
} types[] = {
    {"F32", 4, HEED_F32}, {"F16", 2, HEED_F16}, {"BF16", 2, HEED_BF16}, {"F64", 8, 0},
    {"I64", 8, 0},        {"I32", 4, 0},        {"I16", 2, 0},          {"I8", 1, 0},
    {"U64", 8, 0},        {"U32", 4, 0},        {"U16", 2, 0},          {"U8", 1, 0},
    {"BOOL", 1, 0},       {"F8_E4M3", 1, 0},    {"F8_E5M2", 1, 0},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* Reads an entry of the header, {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}. A
 * tensor may be empty, but its size must not overflow. */
static heed_status read_tensor(const cJSON *entry, size_t room, const char *name, tensor *out,
                               heed_error *why)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    const cJSON *end = cJSON_IsArray(offsets) && offsets->child ? offsets->child->next : NULL;
    int type = 0;
    while (type < N_TYPES &&
           !(cJSON_IsString(dtype) && strcmp(dtype->valuestring, types[type].name) == 0))
        type++;
    if (type == N_TYPES)
        return refuse(why, "%s: tensor %.60s has no dtype that is known", name, entry->string);
    *out = (tensor){.name = entry->string, .type = types[type].type};

    int64_t elements = 1, first, last;
    const cJSON *axis;
    if (!cJSON_IsArray(shape))
        return refuse(why, "%s: tensor %.60s has no shape", name, entry->string);
    cJSON_ArrayForEach(axis, shape)
    {
        int64_t length = json_integer(axis);
        if (out->n_dims == TENSOR_MOST_DIMS || length < 0 ||
            (length > 0 && elements > (INT64_C(1) << 53) / length))
            return refuse(why, "%s: tensor %.60s has a shape that no file can hold", name,
                          entry->string);
        out->shape[out->n_dims++] = length;
        elements *= length;
    }
    first = json_integer(end ? offsets->child : NULL);
    last = json_integer(end && !end->next ? end : NULL);
    if (first < 0 || last < first || (uint64_t)last > room)
        return refuse(why, "%s: tensor %.60s does not lie in the %zu bytes of data", name,
                      entry->string, room);
    if (elements > (INT64_C(1) << 53) / types[type].bytes ||
        last - first != elements * (int64_t)types[type].bytes)
        return refuse(why, "%s: tensor %.60s has %lld bytes of data for %lld elements of %s", name,
                      entry->string, (long long)(last - first), (long long)elements,
                      types[type].name);
    out->first = (size_t)first;
    out->bytes = (size_t)(last - first);
    return HEED_OK;
}

static int by_place(const void *left, const void *right)
{
    const tensor *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* empty ones first */
}

static int by_name(const void *left, const void *right)
{
    const tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Refuses holes and overlaps in the data and names that occur twice, which the format forbids. */
static heed_status check_layout(safetensors *weights, size_t room, const char *name,
                                heed_error *why)
{
    size_t at = 0;
    qsort(weights->tensors, weights->n, sizeof *weights->tensors, by_place);
    for (size_t i = 0; i < weights->n; i++) {
        if (weights->tensors[i].first != at)
            return refuse(why, "%s: the data before tensor %.60s has a hole or an overlap", name,
                          weights->tensors[i].name);
        at += weights->tensors[i].bytes;
    }
    if (at != room)
        return refuse(why, "%s: the tensors cover %zu of %zu bytes of data", name, at, room);
    qsort(weights->tensors, weights->n, sizeof *weights->tensors, by_name);
    for (size_t i = 1; i < weights->n; i++)
        if (by_name(&weights->tensors[i - 1], &weights->tensors[i]) == 0)
            return refuse(why, "%s: two tensors have the name %.60s", name,
                          weights->tensors[i].name);
    return HEED_OK;
}

static heed_status read_header(safetensors *weights, file f, const char *name, heed_error *why)
{
    uint64_t length = 0;
    const cJSON *entry;
    if (f.size < 8)
        return refuse(why, "%s: ends within the length of its header", name);
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)f.bytes[i] << 8 * i;
    if (length > f.size - 8)
        return refuse(why, "%s: has a header of %llu bytes in a file of %zu", name,
                      (unsigned long long)length, f.size);
    heed_status status = json_parse(f.bytes + 8, (size_t)length, name, &weights->header, why);
    if (status != HEED_OK)
        return status;
    if (!cJSON_IsObject(weights->header))
        return refuse(why, "%s: its header is no JSON object", name);

    const unsigned char *data = f.bytes + 8 + length;
    size_t room = f.size - 8 - (size_t)length, n = 0;
    cJSON_ArrayForEach(entry, weights->header) n++;
    weights->tensors = calloc(n + 1, sizeof *weights->tensors);
    if (!weights->tensors)
        return no_memory(why, "the list of tensors");
    cJSON_ArrayForEach(entry, weights->header)
    {
        if (strcmp(entry->string, "__metadata__") == 0)
            continue;
        tensor *t = &weights->tensors[weights->n++];
        status = read_tensor(entry, room, name, t, why);
        if (status != HEED_OK)
            return status;
        t->data = data + t->first;
    }
    return check_layout(weights, room, name, why);
}

heed_status safetensors_open(file f, const char *name, safetensors *out, heed_error *why)
{
    const uint16_t one = 1;
    safetensors weights = {0};
    if (!*(const unsigned char *)&one)
        return refuse(why, "%s: this machine is not little-endian, as the file is", name);
    heed_status status = read_header(&weights, f, name, why);
    if (status != HEED_OK) {
        safetensors_close(&weights);
        return status;
    }
    *out = weights;
    return HEED_OK;
}

void safetensors_close(safetensors *weights)
{
    cJSON_Delete(weights->header);
    free(weights->tensors);
    *weights = (safetensors){0};
}

heed_status safetensors_find(const safetensors *weights, const char *name, int n_dims,
                             const int64_t *shape, const tensor **out, heed_error *why)
{
    const tensor key = {.name = name};
    tensor *t =
        weights->n ? bsearch(&key, weights->tensors, weights->n, sizeof key, by_name) : NULL;
    if (!t)
        return refuse(why, "the weights have no tensor %s", name);
    if (t->type == HEED_DTYPE_NONE)
        return refuse(why, "tensor %s is none of F32, F16 and BF16", name);
    int same = t->n_dims == n_dims;
    char wanted[TENSOR_MOST_DIMS * 22] = "";
    for (int i = 0, used = 0; i < n_dims; i++) {
        same = same && t->shape[i] == shape[i];
        used += sprintf(wanted + used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    }
    if (!same)
        return refuse(why, "tensor %s is not of shape [%s]", name, wanted);
    t->found = 1;
    *out = t;
    return HEED_OK;
}

heed_status safetensors_refuse_rest(const safetensors *weights, const char *name,
                                    const char *prefix, const char *except, heed_error *why)
{
    for (size_t i = 0; i < weights->n; i++) {
        const tensor *t = &weights->tensors[i];
        if (!t->found && strncmp(t->name, prefix, strlen(prefix)) == 0 &&
            !ends_with(t->name, except))
            return refuse(why, "%s: tensor %.120s is not served", name, t->name);
    }
    return HEED_OK;
}

void tensor_to_f32(const tensor *t, int64_t first, int64_t n, float *out)
{
    if (t->type == HEED_F32) {
        memcpy(out, t->data + first * 4, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = heed_load(t->type, t->data, first + i);
}
