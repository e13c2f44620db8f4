/* Reads JSON files with cJSON, which refuses values that are nested 1000 deep. */
#include "json.h"

#include <math.h>
#include <string.h>

/* A limit, since a parsed value may take 40 times the memory of its text. */
enum { MOST_BYTES = 8 << 20 };

heed_status json_parse(const unsigned char *bytes, size_t size, const char *name, cJSON **out,
                       heed_error *why)
{
    const char *text = (const char *)bytes, *end = text;
    if (size > MOST_BYTES)
        return refuse(why, "%s: its JSON has %zu bytes; at most %d are read", name, size,
                      MOST_BYTES);
    cJSON *value = size > 0 ? cJSON_ParseWithLengthOpts(text, size, &end, 0) : NULL;
    if (!value)
        return refuse(why, "%s: no valid JSON, or nested too deep, at byte %zu", name,
                      (size_t)(cJSON_GetErrorPtr() && size > 0 ? cJSON_GetErrorPtr() - text : 0));
    while (end < text + size && (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t'))
        end++;
    if (end < text + size) {
        cJSON_Delete(value);
        return refuse(why, "%s: something follows its JSON at byte %zu", name,
                      (size_t)(end - text));
    }
    *out = value;
    return HEED_OK;
}

const cJSON *json_setting(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(value) ? NULL : value;
}

int json_is_text(const cJSON *value, const char *text)
{
    return cJSON_IsString(value) && strcmp(value->valuestring, text) == 0;
}

int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), of_end = strlen(end);
    return n >= of_end && strcmp(text + n - of_end, end) == 0;
}

int64_t json_integer(const cJSON *value)
{
    double number = cJSON_IsNumber(value) ? value->valuedouble : -1;
    return number >= 0 && number <= 0x1p53 && floor(number) == number ? (int64_t)number : -1;
}

heed_status json_get_integer(const cJSON *object, const char *name, const char *key, int64_t least,
                             int64_t most, int64_t *out, heed_error *why)
{
    int64_t number = json_integer(cJSON_GetObjectItemCaseSensitive(object, key));
    if (number < least || number > most)
        return refuse(why, "%s: %s is missing or no integer from %lld to %lld", name, key,
                      (long long)least, (long long)most);
    *out = number;
    return HEED_OK;
}

heed_status json_get_number(const cJSON *object, const char *name, const char *key, double most,
                            double *out, heed_error *why)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0 && value->valuedouble <= most))
        return refuse(why, "%s: %s is missing or no number from 0 to %g", name, key, most);
    *out = value->valuedouble;
    return HEED_OK;
}
