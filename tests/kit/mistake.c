/* Makes the mistakes of a table, and judges what comes back. See mistake.h. */
#include "mistake.h"

#include "problem.h"

#include <string.h>

static max_align_t something[64];

const char *kit_make_mistake(const kit_mistake *m, void *call, uint32_t pick)
{
    if (m->make)
        return m->make(call, m->arg, pick);
    unsigned char *field = (unsigned char *)call + m->at;
    int64_t value = m->value[pick % m->n], old = 0;
    if (value == KIT_SOMETHING)
        value = (int64_t)(intptr_t)something;
    memcpy(&old, field, m->bytes); /* little-endian, as all machines that the kit runs on */
    value = m->how == KIT_OR ? old | value : m->how == KIT_ADD ? old + value : value;
    memcpy(field, &value, m->bytes);
    return m->word;
}

int kit_break_stride(int64_t *stride, const int64_t *shape, int n_axes, uint32_t element,
                     int is_output, uint32_t pick)
{
    static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 4};
    const int axis = (int)(pick % (uint32_t)n_axes);
    int64_t elements = 1;
    for (int i = 0; i < n_axes; i++)
        elements *= shape[i];
    pick /= (uint32_t)n_axes;
    const int broadcast = is_output && pick & 1;
    stride[axis] = broadcast ? 0 : far[(pick >> 1) % (element < 4 ? 2 : 4)];
    return elements > 0 && shape[axis] > 1;
}

void kit_judge_refusal(const kit_mistake *m, const char *word, const char *call, heed_status status,
                       const char *sentence, kit_outcome *outcome)
{
    if (status != m->status)
        kit_fail(outcome, "%s: %s returned %s, %s is required (it says: %s)", m->name, call,
                 heed_status_string(status), heed_status_string(m->status),
                 status == HEED_OK ? "nothing" : sentence);
    else if (!*sentence || !strstr(sentence, word))
        kit_fail(outcome, "%s: %s does not name %s: '%s'", m->name, call, word, sentence);
}

int kit_map_workspace(kit_mistaken_workspace *w, size_t bytes)
{
    *w = (kit_mistaken_workspace){.n_parts = KIT_MISTAKEN_PARTS, .most = SIZE_MAX};
    return guard_map(&w->memory, (bytes + 63) / 64 * 64 + 64, GUARD_HIGH, 0, 0xa5);
}

const char *kit_spoil_workspace(kit_mistaken_workspace *w, int mistake, uint32_t pick)
{
    switch (mistake) {
    case KIT_CROOKED:
        return w->shift = 1 + pick % 63, "workspace";
    case KIT_SMALL:
        if (pick & 1)
            w->most = pick >> 1 & 255;
        else
            w->less = 1;
        return "workspace";
    case KIT_NO_PARTS:
        return w->n_parts = 0, "n_parts";
    default:
        return w->n_parts = UINT32_MAX, "workspace";
    }
}

void *kit_workspace(const kit_mistaken_workspace *w)
{
    return w->memory.data + w->shift;
}

size_t kit_bytes_left(const kit_mistaken_workspace *w, size_t bytes)
{
    return bytes - w->less < w->most ? bytes - w->less : w->most;
}

int kit_is_canary(const guard_buffer *buffer)
{
    for (size_t at = 0; at < buffer->bytes; at++)
        if (buffer->data[at] != KIT_CANARY)
            return 0;
    return 1;
}
