/* The reader and writer of .npy files. The header of a file is a Python literal and is not trusted:
 * it is scanned character by character, and everything in it is checked before it is used. */
#include "npy.h"

#include <errno.h>
#include <heed/backend.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define HEADER_LIMIT (1u << 20) /* headers by numpy have a few hundred bytes */
#define SIZE_LIMIT (INT64_C(1) << 62)

static const struct {
    const char *code; /* what follows the byte order */
    int64_t bytes;
} types[] = {
    [HEED_NPY_F2] = {"f2", 2}, [HEED_NPY_F4] = {"f4", 4}, [HEED_NPY_F8] = {"f8", 8},
    [HEED_NPY_B1] = {"b1", 1}, [HEED_NPY_I4] = {"i4", 4}, [HEED_NPY_I8] = {"i8", 8},
    [HEED_NPY_U2] = {"u2", 2},
};
#define N_TYPES ((int)(sizeof types / sizeof types[0]))

static int little_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one;
}

int64_t heed_npy_type_bytes(int type)
{
    return type > 0 && type < N_TYPES ? types[type].bytes : 0;
}

const char *heed_npy_type_name(int type)
{
    return type > 0 && type < N_TYPES ? types[type].code : "unknown";
}

const char *heed_npy_shape_text(int n_dims, const int64_t *shape, char *text)
{
    size_t used = 0;
    text[used++] = '[';
    for (int d = 0; d < n_dims; d++)
        used += (size_t)sprintf(text + used, "%s%lld", d ? ", " : "", (long long)shape[d]);
    strcpy(text + used, "]");
    return text;
}

int heed_npy_multiply(int64_t a, int64_t b, int64_t *product)
{
    if (a < 0 || b < 0 || (b > 0 && a > SIZE_LIMIT / b))
        return 0;
    *product = a * b;
    return 1;
}

double heed_npy_number(const heed_npy *array, int64_t index)
{
    const char *at = (const char *)array->data + index * heed_npy_type_bytes(array->type);
    double f8 = 0;
    int64_t i8;
    int32_t i4;
    switch (array->type) {
    case HEED_NPY_F2:
        return (double)heed_load(HEED_F16, at, 0);
    case HEED_NPY_F4:
        return (double)heed_load(HEED_F32, at, 0);
    case HEED_NPY_U2:
        return (double)heed_load(HEED_BF16, at, 0);
    case HEED_NPY_F8:
        memcpy(&f8, at, sizeof f8);
        return f8;
    case HEED_NPY_I4:
        memcpy(&i4, at, sizeof i4);
        return i4;
    case HEED_NPY_I8:
        memcpy(&i8, at, sizeof i8);
        return (double)i8;
    default:
        return *at != 0;
    }
}

void heed_npy_free(heed_npy *array)
{
    free(array->data);
    array->data = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

heed_status heed_npy_refuse(heed_error *why, const char *path, const char *format, ...)
{
    char reason[160];
    va_list list;
    va_start(list, format);
    vsnprintf(reason, sizeof reason, format, list);
    va_end(list);
    /* If a path is too long, its end is cut off, not the reason. */
    snprintf(why->text, sizeof why->text, "%.90s: %s", path, reason);
    return HEED_ERR_INVALID;
}

/* The rest of the header, [at, end), while it is scanned. */
typedef struct scanner {
    const char *at, *end;
} scanner;

static void skip_space(scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

/* Takes the character c if it is next, with spaces before it. */
static int take(scanner *s, char c)
{
    skip_space(s);
    if (s->at == s->end || *s->at != c)
        return 0;
    s->at++;
    return 1;
}

static int take_word(scanner *s, const char *word)
{
    size_t n = strlen(word);
    skip_space(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return 0;
    s->at += n;
    return 1;
}

/* Takes a quoted string of printable ASCII without escapes that is shorter than room. */
static int take_string(scanner *s, char *text, size_t room)
{
    char quote;
    size_t n = 0;
    skip_space(s);
    if (s->at == s->end || (*s->at != '\'' && *s->at != '"'))
        return 0;
    for (quote = *s->at++; s->at < s->end && *s->at != quote; s->at++) {
        if (n + 1 >= room || *s->at == '\\' || *s->at < ' ' || *s->at > '~')
            return 0;
        text[n++] = *s->at;
    }
    text[n] = '\0';
    return take(s, quote);
}

/* Takes a length: digits, perhaps with the L of Python 2. */
static int take_length(scanner *s, int64_t *length)
{
    int64_t value = 0;
    skip_space(s);
    if (s->at == s->end || *s->at < '0' || *s->at > '9')
        return 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (value > (SIZE_LIMIT - 9) / 10)
            return 0;
        value = value * 10 + (*s->at - '0');
    }
    if (s->at < s->end && *s->at == 'L')
        s->at++;
    *length = value;
    return 1;
}

static heed_status take_shape(scanner *s, const char *path, heed_npy *array, heed_error *why)
{
    int comma = 1;
    array->n_dims = 0;
    if (!take(s, '('))
        return heed_npy_refuse(why, path, "its header's shape is not a tuple");
    while (!take(s, ')')) {
        if (array->n_dims == HEED_NPY_MAX_DIMS)
            return heed_npy_refuse(why, path, "has more than %d dimensions", HEED_NPY_MAX_DIMS);
        if (!comma || !take_length(s, &array->shape[array->n_dims]))
            return heed_npy_refuse(why, path,
                                   "its header's shape is not a tuple of lengths below 2^62");
        array->n_dims++;
        comma = take(s, ',');
    }
    return HEED_OK;
}

/* Takes a type such as '<f4', and whether its bytes are in the opposite order of this machine's. */
static heed_status take_descr(scanner *s, const char *path, heed_npy *array, int *swapped,
                              heed_error *why)
{
    char descr[16];
    if (!take_string(s, descr, sizeof descr))
        return heed_npy_refuse(why, path, "its element type is not a plain number");
    for (array->type = N_TYPES - 1; array->type > 0; array->type--)
        if (descr[0] != '\0' && strcmp(descr + 1, types[array->type].code) == 0)
            break;
    if (array->type == 0 || !strchr("<>|=", descr[0]) ||
        (descr[0] == '|' && types[array->type].bytes > 1))
        return heed_npy_refuse(
            why, path, "holds '%s'; served are f2, f4, f8, b1, i4, i8 and u2 (bf16)", descr);
    *swapped =
        types[array->type].bytes > 1 && descr[0] != '=' && (descr[0] == '<') != little_endian();
    return HEED_OK;
}

/* Scans {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, in any order, each key
 * once. */
static heed_status scan_header(scanner s, const char *path, heed_npy *array, int *swapped,
                               int *fortran, heed_error *why)
{
    heed_status status = HEED_OK;
    int descr = 0, order = 0, shape = 0, comma = 1;
    char key[16];
    if (!take(&s, '{'))
        return heed_npy_refuse(why, path, "its header is not a dictionary");
    while (!take(&s, '}')) {
        if (!comma || !take_string(&s, key, sizeof key) || !take(&s, ':'))
            return heed_npy_refuse(why, path,
                                   "its header is not a dictionary of numpy's three keys");
        if (strcmp(key, "descr") == 0 && !descr++) {
            status = take_descr(&s, path, array, swapped, why);
        } else if (strcmp(key, "shape") == 0 && !shape++) {
            status = take_shape(&s, path, array, why);
        } else if (strcmp(key, "fortran_order") == 0 && !order++) {
            *fortran = take_word(&s, "True");
            if (!*fortran && !take_word(&s, "False"))
                status = heed_npy_refuse(why, path,
                                         "its header's fortran_order is neither True nor False");
        } else {
            status =
                heed_npy_refuse(why, path, "its header has an unknown or repeated key '%s'", key);
        }
        if (status != HEED_OK)
            return status;
        comma = take(&s, ',');
    }
    skip_space(&s);
    if (s.at != s.end)
        return heed_npy_refuse(why, path, "its header goes on after the dictionary");
    if (!descr || !order || !shape)
        return heed_npy_refuse(why, path, "its header lacks %s",
                               !descr   ? "descr"
                               : !shape ? "shape"
                                        : "fortran_order");
    return HEED_OK;
}

/* Computes count and the bytes of the data. A dimension of 0 does not hide an overflow of the
 * others. */
static heed_status check_size(const char *path, heed_npy *array, int64_t *bytes, heed_error *why)
{
    int64_t full = heed_npy_type_bytes(array->type);
    array->count = 1;
    for (int d = 0; d < array->n_dims; d++) {
        if (!heed_npy_multiply(full, array->shape[d] ? array->shape[d] : 1, &full))
            return heed_npy_refuse(why, path, "its header's shape is larger than any memory");
        array->count *= array->shape[d];
    }
    *bytes = array->count * heed_npy_type_bytes(array->type);
    return HEED_OK;
}

/* Reads exactly `bytes` bytes. Memory grows with the data that are really there, so that a header
 * alone cannot allocate much. */
static heed_status read_data(FILE *file, const char *path, int64_t bytes, void **out,
                             heed_error *why)
{
    size_t need = (size_t)bytes, room = need < 1u << 20 ? need + 1 : 1u << 20, have = 0;
    char *data = malloc(room);
    while (data) {
        have += fread(data + have, 1, (need < room ? need : room) - have, file);
        if (have == need || have < room)
            break;
        room = room > need / 2 ? need : room * 2;
        char *more = realloc(data, room);
        if (!more)
            free(data);
        data = more;
    }
    if (!data) {
        heed_npy_refuse(why, path, "no memory for its %lld bytes", (long long)bytes);
        return HEED_ERR_NOMEM;
    }
    *out = data;
    if (have < need)
        return heed_npy_refuse(why, path, "ends after %zu of its %zu data bytes", have, need);
    if (fgetc(file) != EOF)
        return heed_npy_refuse(why, path, "goes on after the %zu data bytes that its header names",
                               need);
    return HEED_OK;
}

static void swap_bytes(heed_npy *array)
{
    int64_t size = heed_npy_type_bytes(array->type);
    for (int64_t i = 0; i < array->count; i++) {
        char *at = (char *)array->data + i * size;
        for (int64_t b = 0; b < size / 2; b++) {
            char kept = at[b];
            at[b] = at[size - 1 - b];
            at[size - 1 - b] = kept;
        }
    }
}

/* Turns Fortran order into C order: index counts up in C order while `from` follows it in the
 * file. */
static heed_status to_c_order(const char *path, heed_npy *array, heed_error *why)
{
    int64_t size = heed_npy_type_bytes(array->type), index[HEED_NPY_MAX_DIMS] = {0};
    int64_t stride[HEED_NPY_MAX_DIMS], from = 0, step = 1;
    char *data = malloc((size_t)(array->count * size) + 1);
    if (!data) {
        heed_npy_refuse(why, path, "no memory to bring it into C order");
        return HEED_ERR_NOMEM;
    }
    for (int d = 0; d < array->n_dims; d++) {
        stride[d] = step;
        step *= array->shape[d];
    }
    for (int64_t i = 0; i < array->count; i++) {
        memcpy(data + i * size, (char *)array->data + from * size, (size_t)size);
        for (int d = array->n_dims - 1; d >= 0; d--) {
            from += stride[d];
            if (++index[d] < array->shape[d])
                break;
            from -= stride[d] * array->shape[d];
            index[d] = 0;
        }
    }
    free(array->data);
    array->data = data;
    return HEED_OK;
}

/* Reads the text of the header, whose length takes 2 bytes in version 1 and 4 in versions 2 and
 * 3. */
static heed_status read_header(FILE *file, const char *path, char **text, uint32_t *length,
                               heed_error *why)
{
    unsigned char start[MAGIC_BYTES + 2], size[4] = {0};
    if (fread(start, 1, sizeof start, file) != sizeof start ||
        memcmp(start, MAGIC, MAGIC_BYTES) != 0)
        return ferror(file) ? heed_npy_refuse(why, path, "cannot be read: %s", strerror(errno))
                            : heed_npy_refuse(why, path, "is not a .npy file");
    if (start[MAGIC_BYTES] < 1 || start[MAGIC_BYTES] > 3 || start[MAGIC_BYTES + 1] != 0)
        return heed_npy_refuse(why, path, "is .npy version %d.%d; served are 1.0, 2.0 and 3.0",
                               start[MAGIC_BYTES], start[MAGIC_BYTES + 1]);
    size_t size_bytes = start[MAGIC_BYTES] == 1 ? 2 : 4;
    if (fread(size, 1, size_bytes, file) != size_bytes)
        return heed_npy_refuse(why, path, "ends within its header");
    *length = size[0] | (uint32_t)size[1] << 8 | (uint32_t)size[2] << 16 | (uint32_t)size[3] << 24;
    if (*length > HEADER_LIMIT)
        return heed_npy_refuse(why, path, "has a header of %u bytes; at most %u are read", *length,
                               HEADER_LIMIT);
    *text = malloc(*length + 1);
    if (!*text) {
        heed_npy_refuse(why, path, "no memory for its header");
        return HEED_ERR_NOMEM;
    }
    if (fread(*text, 1, *length, file) != *length)
        return heed_npy_refuse(why, path, "ends within its header");
    return HEED_OK;
}

/* Reads the type, the shape and the number of bytes of the data, which come next in the file. */
static heed_status read_kind(FILE *file, const char *path, heed_npy *array, int *swapped,
                             int *fortran, int64_t *bytes, heed_error *why)
{
    uint32_t length = 0;
    char *text = NULL;
    heed_status status = read_header(file, path, &text, &length, why);
    if (status == HEED_OK)
        status = scan_header((scanner){text, text + length}, path, array, swapped, fortran, why);
    if (status == HEED_OK)
        status = check_size(path, array, bytes, why);
    free(text);
    return status;
}

heed_status heed_npy_read_header(FILE *file, const char *path, heed_npy *out, int *swapped,
                                 int *fortran, heed_error *why)
{
    heed_npy array = {0};
    int64_t bytes = 0;
    heed_status status = read_kind(file, path, &array, swapped, fortran, &bytes, why);
    if (status == HEED_OK)
        *out = array;
    return status;
}

heed_status heed_npy_read_from(FILE *file, const char *path, heed_npy *out, heed_error *why)
{
    heed_npy array = {0};
    int swapped = 0, fortran = 0;
    int64_t bytes = 0;
    heed_status status = read_kind(file, path, &array, &swapped, &fortran, &bytes, why);
    if (status == HEED_OK)
        status = read_data(file, path, bytes, &array.data, why);
    if (status == HEED_OK && swapped)
        swap_bytes(&array);
    if (status == HEED_OK && fortran)
        status = to_c_order(path, &array, why);
    if (status != HEED_OK) {
        heed_npy_free(&array);
        return status;
    }
    *out = array;
    return HEED_OK;
}

heed_status heed_npy_read(const char *path, heed_npy *out, heed_error *why)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return heed_npy_refuse(why, path, "cannot be opened: %s", strerror(errno));
    heed_status status = heed_npy_read_from(file, path, out, why);
    fclose(file);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

heed_status heed_npy_write(const char *path, const heed_npy *array, heed_error *why)
{
    int one_byte = heed_npy_type_bytes(array->type) == 1;
    char order = one_byte ? '|' : little_endian() ? '<' : '>';
    char header[384], start[MAGIC_BYTES + 4] = MAGIC "\x01";
    int used =
        snprintf(header, sizeof header, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                 order, heed_npy_type_name(array->type));
    for (int d = 0; d < array->n_dims; d++)
        used += snprintf(header + used, sizeof header - (size_t)used, "%s%lld", d ? ", " : "",
                         (long long)array->shape[d]);
    used += snprintf(header + used, sizeof header - (size_t)used, "%s), }",
                     array->n_dims == 1 ? "," : "");
    /* Padded with spaces and a newline, so that the data begin at a multiple of 64 bytes. */
    while ((sizeof start + (size_t)used + 1) % 64 != 0)
        header[used++] = ' ';
    header[used++] = '\n';
    start[MAGIC_BYTES + 2] = (char)(used & 255);
    start[MAGIC_BYTES + 3] = (char)(used >> 8);

    FILE *file = fopen(path, "wb");
    if (!file)
        return heed_npy_refuse(why, path, "cannot be written: %s", strerror(errno));
    size_t bytes = (size_t)(array->count * heed_npy_type_bytes(array->type));
    int good = fwrite(start, 1, sizeof start, file) == sizeof start &&
               fwrite(header, 1, (size_t)used, file) == (size_t)used &&
               fwrite(array->data, 1, bytes, file) == bytes;
    int number = errno;
    if (fclose(file) != 0 && good) {
        number = errno;
        good = 0;
    }
    return good ? HEED_OK : heed_npy_refuse(why, path, "cannot be written: %s", strerror(number));
}
