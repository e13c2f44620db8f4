/* An argument that the plan did not ask for is refused by its name, even where every axis of q, k,
 * v and out has one element, so that its stride may be anything: strides are not checked against
 * lists that the plan does not have. */
#include "unit.h"

static heed_context *context;
static unit_problem problem;

static void refused(const heed_attn_args *args, const char *name)
{
    char want[64];
    snprintf(want, sizeof want, "args.%s is given", name);
    const heed_status st = heed_attention(context, &problem.desc, args);
    CHECK(st == HEED_ERR_INVALID && strstr(heed_last_error(), want), "%s: %s, %s", name,
          heed_status_string(st), heed_last_error());
}

int main(void)
{
    static const int32_t numbers[2];
    context = unit_context(1, NULL);
    problem = unit_make(1, 1, 1, 1, 8, 1);
    heed_attn_args *args = &problem.args;
    for (int axis = 0; axis < 3; axis++)
        args->q.stride[axis] = args->k.stride[axis] = args->v.stride[axis] =
            args->out.stride[axis] = axis % 2 ? INT64_MIN : INT64_MAX;
    CHECK_OK(heed_attention(context, &problem.desc, args));
    CHECK(!memcmp(problem.out, problem.v, problem.out_bytes), "not the only value");
    const struct {
        const char *name;
        const int32_t **array;
    } unasked[] = {{"q_lens", &args->q_lens},          {"kv_lens", &args->kv_lens},
                   {"q_starts", &args->q_starts},      {"kv_starts", &args->kv_starts},
                   {"q_offsets", &args->q_offsets},    {"mask_from", &args->mask_from},
                   {"block_table", &args->block_table}};
    for (size_t i = 0; i < sizeof unasked / sizeof *unasked; i++) {
        *unasked[i].array = numbers;
        refused(args, unasked[i].name);
        *unasked[i].array = NULL;
    }
    unit_free(&problem);
    heed_context_release(context);
    return checks_end();
}
