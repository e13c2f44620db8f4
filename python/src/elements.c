/* Types of elements: ours, those of buffers and those of DLPack. */
#include "dlpack.h"

int element_bytes(uint32_t type)
{
    switch (type) {
    case EL_BOOL:
        return 1;
    case EL_I16:
    case EL_U16:
        return 2;
    case EL_I32:
    case EL_U32:
        return 4;
    case EL_I64:
    case EL_U64:
    case EL_F64:
        return 8;
    default:
        return (int)heed_dtype_bytes(type);
    }
}

bool is_truth(uint32_t type)
{
    return type == EL_BOOL || type == HEED_I8 || type == HEED_U8;
}

const char *element_name(uint32_t type)
{
    static const char *const name[] = {"bool",  "int16",  "uint16",  "int32",       "uint32",
                                       "int64", "uint64", "float64", "another type"};
    return type >= EL_BOOL && type <= EL_OTHER ? name[type - EL_BOOL] : heed_dtype_name(type);
}

uint32_t type_of_format(const char *format, Py_ssize_t bytes)
{
    if (!format)
        return HEED_U8;
    if (*format == '@' || *format == '=' || *format == '<') /* this machine is little endian */
        format++;
    if (format[0] == 0 || format[1] != 0)
        return EL_OTHER;
    switch (format[0]) {
    case 'f':
        return HEED_F32;
    case 'e':
        return HEED_F16;
    case 'd':
        return EL_F64;
    case '?':
        return EL_BOOL;
    case 'b':
        return HEED_I8;
    case 'B':
    case 'c':
        return HEED_U8;
    case 'h':
        return EL_I16;
    case 'H':
        return EL_U16;
    case 'i':
    case 'l':
    case 'q':
        return bytes == 8 ? EL_I64 : EL_I32;
    case 'I':
    case 'L':
    case 'Q':
        return bytes == 8 ? EL_U64 : EL_U32;
    default:
        return EL_OTHER;
    }
}

const char *format_of_type(uint32_t type)
{
    switch (type) {
    case HEED_F32:
        return "f";
    case HEED_F16:
        return "e";
    case HEED_I8:
        return "b";
    case HEED_BF16:
    case EL_U16:
        return "H";
    case EL_BOOL:
        return "?";
    case EL_I32:
        return "i";
    case EL_U64:
        return "Q";
    default:
        return "B";
    }
}

uint32_t type_of_dl(dl_type t)
{
    if (t.lanes != 1)
        return EL_OTHER;
    switch (t.code << 8 | t.bits) {
    case DL_FLOAT << 8 | 32:
        return HEED_F32;
    case DL_FLOAT << 8 | 16:
        return HEED_F16;
    case DL_BFLOAT << 8 | 16:
        return HEED_BF16;
    case DL_FLOAT << 8 | 64:
        return EL_F64;
    case DL_BOOL << 8 | 8:
        return EL_BOOL;
    case DL_E4M3FN << 8 | 8:
        return HEED_F8_E4M3;
    case DL_UINT << 8 | 8:
        return HEED_U8;
    case DL_INT << 8 | 8:
        return HEED_I8;
    case DL_INT << 8 | 16:
        return EL_I16;
    case DL_UINT << 8 | 16:
        return EL_U16;
    case DL_INT << 8 | 32:
        return EL_I32;
    case DL_UINT << 8 | 32:
        return EL_U32;
    case DL_INT << 8 | 64:
        return EL_I64;
    case DL_UINT << 8 | 64:
        return EL_U64;
    default:
        return EL_OTHER;
    }
}

dl_type dl_of_type(uint32_t type)
{
    dl_type t = {DL_UINT, (uint8_t)(8 * element_bytes(type)), 1};
    if (type == HEED_F32 || type == HEED_F16 || type == EL_F64)
        t.code = DL_FLOAT;
    else if (type == HEED_BF16)
        t.code = DL_BFLOAT;
    else if (type == EL_BOOL)
        t.code = DL_BOOL;
    else if (type == HEED_I8 || type == EL_I16 || type == EL_I32 || type == EL_I64)
        t.code = DL_INT;
    return t;
}

const char *shape_text(char *text, size_t bytes, int axes, const int64_t *shape)
{
    size_t at = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < axes && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (at < bytes)
        snprintf(text + at, bytes - at, "]");
    return text;
}
