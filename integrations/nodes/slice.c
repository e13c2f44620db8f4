/* See slice.h. */
#include "slice.h"

#include <errno.h>
#include <heed/formats.h>
#include <stdlib.h>
#include <string.h>

static int is_float(int type)
{
    return type == HEED_NPY_F2 || type == HEED_NPY_F4 || type == HEED_NPY_F8 || type == HEED_NPY_U2;
}

/* Parts are read from where they lie, so what heed run converts is refused here. */
static heed_status check_kind(const slice_file *f, int swapped, int fortran, heed_error *why)
{
    char shape[HEED_NPY_SHAPE_TEXT];
    if (!is_float(f->kind.type))
        return heed_npy_refuse(why, f->path, "holds %s: f2, f4, f8 or u2 is required",
                               heed_npy_type_name(f->kind.type));
    if (f->kind.n_dims != 4)
        return heed_npy_refuse(why, f->path, "has shape %s: four dimensions are required",
                               heed_npy_shape_text(f->kind.n_dims, f->kind.shape, shape));
    for (int d = 0; d < 4; d++)
        if (f->kind.shape[d] > INT32_MAX)
            return heed_npy_refuse(why, f->path, "has shape %s: a length is above 2^31 - 1",
                                   heed_npy_shape_text(4, f->kind.shape, shape));
    if (fortran)
        return heed_npy_refuse(why, f->path, "is in Fortran order: C order is required");
    if (swapped)
        return heed_npy_refuse(why, f->path,
                               "is in the other byte order: this machine's is required");
    return HEED_OK;
}

heed_status slice_open(slice_file *f, const char *path, heed_error *why)
{
    int swapped = 0, fortran = 0;
    f->path = path;
    f->file = fopen(path, "rb");
    if (!f->file)
        return heed_npy_refuse(why, path, "cannot be opened: %s", strerror(errno));
    heed_status status = heed_npy_read_header(f->file, path, &f->kind, &swapped, &fortran, why);
    f->start = ftell(f->file);
    if (status == HEED_OK)
        status = check_kind(f, swapped, fortran, why);
    if (status != HEED_OK) {
        fclose(f->file);
        f->file = NULL;
    }
    return status;
}

heed_status slice_create(const char *path, const heed_npy *kind, long *start, heed_error *why)
{
    heed_npy empty = *kind; /* its header alone */
    empty.count = 0;
    empty.data = &empty;
    heed_status status = heed_npy_write(path, &empty, why);
    FILE *file = status == HEED_OK ? fopen(path, "rb") : NULL;
    if (status != HEED_OK)
        return status;
    if (!file || fseek(file, 0, SEEK_END) != 0)
        status = heed_npy_refuse(why, path, "cannot be read again: %s", strerror(errno));
    *start = file ? ftell(file) : 0;
    if (file)
        fclose(file);
    return status;
}

heed_status slice_open_made(slice_file *f, const char *path, const heed_npy *kind, long start,
                            heed_error *why)
{
    f->path = path;
    f->kind = *kind;
    f->start = start;
    f->file = fopen(path, "r+b");
    return f->file
               ? HEED_OK
               : heed_npy_refuse(why, path, "cannot be opened for writing: %s", strerror(errno));
}

/* Moves to element [b, h, row, 0]. */
static int seek(slice_file *f, int64_t b, int64_t h, int64_t row)
{
    const int64_t *n = f->kind.shape;
    const int64_t at = ((b * n[1] + h) * n[2] + row) * n[3];
    return fseek(f->file, f->start + (long)(at * heed_npy_type_bytes(f->kind.type)), SEEK_SET) == 0;
}

heed_status slice_read(slice_file *f, int64_t b, int64_t row, int64_t n, const slice_rows *to,
                       heed_error *why)
{
    const int64_t dim = f->kind.shape[3], count = n * dim;
    heed_npy part = {.type = f->kind.type,
                     .data = malloc((size_t)(count * heed_npy_type_bytes(f->kind.type)) + 1)};
    heed_status status =
        part.data ? HEED_OK : heed_npy_refuse(why, f->path, "no memory for a part of it");
    for (int64_t h = 0; h < f->kind.shape[1] && status == HEED_OK; h++) {
        const size_t size = (size_t)heed_npy_type_bytes(part.type);
        if (!seek(f, b, h, row) || fread(part.data, size, (size_t)count, f->file) != (size_t)count)
            status = heed_npy_refuse(why, f->path, "ends before the data that its header names");
        for (int64_t i = 0; i < count && status == HEED_OK; i++)
            heed_store_f64(to->type, to->data, (h * to->rows + to->at) * dim + i,
                           heed_npy_number(&part, i));
    }
    heed_npy_free(&part);
    return status;
}

heed_status slice_write(slice_file *f, int64_t b, const int64_t heads[2], int64_t row, int64_t n,
                        const slice_rows *from, heed_error *why)
{
    const int64_t dim = f->kind.shape[3], count = n * dim;
    const uint32_t as = f->kind.type == HEED_NPY_F2 ? HEED_F16 : HEED_F32;
    const size_t size = (size_t)heed_npy_type_bytes(f->kind.type);
    char *part = malloc((size_t)count * size + 1);
    heed_status status =
        part ? HEED_OK : heed_npy_refuse(why, f->path, "no memory for a part of it");
    for (int64_t h = heads[0]; h < heads[1] && status == HEED_OK; h++) {
        for (int64_t i = 0; i < count; i++)
            heed_store(as, part, i,
                       heed_load(from->type, from->data, (h * from->rows + from->at) * dim + i));
        if (!seek(f, b, h, row) || fwrite(part, size, (size_t)count, f->file) != (size_t)count)
            status = heed_npy_refuse(why, f->path, "cannot be written: %s", strerror(errno));
    }
    free(part);
    return status;
}

heed_status slice_close(slice_file *f, heed_error *why)
{
    FILE *file = f->file;
    f->file = NULL;
    return !file || fclose(file) == 0
               ? HEED_OK
               : heed_npy_refuse(why, f->path, "cannot be written: %s", strerror(errno));
}
