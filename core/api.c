/* The public calls, in the order in which they are used. No mathematics. */
#include <heed/heed.h>

uint32_t heed_version(void)
{
    return HEED_VERSION_NUMBER;
}

const char *heed_status_string(heed_status status)
{
    static const char *const name[] = {"HEED_OK",        "HEED_ERR_INVALID", "HEED_ERR_UNSUPPORTED",
                                       "HEED_ERR_NOMEM", "HEED_ERR_BACKEND", "HEED_ERR_ABI"};
    return status >= 0 && status <= HEED_ERR_ABI ? name[status] : "unknown status";
}
