/* What the programs that run models of llama.cpp on Heed share. */
#include "play.h"

#include <ggml-backend.h>
#include <stdio.h>
#include <string.h>

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

static play_counter *find(ggml_backend_reg_t registry, const char *name)
{
    void *address = registry ? ggml_backend_reg_get_proc_address(registry, name) : NULL;
    play_counter *count = NULL;
    memcpy(&count, &address, sizeof count); /* C has no cast for it */
    return count;
}

int play_begin(play_counters *to)
{
    llama_log_set(quiet, NULL);
    ggml_backend_load_all();
    ggml_backend_reg_t registry = ggml_backend_reg_by_name("Heed");
    to->attentions = find(registry, "ggml_heed_attentions");
    to->products = find(registry, "ggml_heed_products");
    if (!to->attentions || !to->products)
        fprintf(stderr, "the backend Heed is not loaded: set GGML_BACKEND_PATH\n");
    return to->attentions && to->products;
}

struct llama_context_params play_params(uint32_t n_ctx, uint32_t n_batch)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_batch = params.n_ubatch = n_batch;
    params.n_threads = params.n_threads_batch = 2;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
    return params;
}

int play_decode(struct llama_context *context, const play_token *tokens, int32_t n, float *logits)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(context));
    const size_t n_vocab = (size_t)llama_vocab_n_tokens(vocab);
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    for (int32_t i = 0; i < n; i++) {
        batch.token[i] = tokens[i].token;
        batch.pos[i] = tokens[i].position;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = tokens[i].sequence;
        batch.logits[i] = 1;
    }
    batch.n_tokens = n;
    const int failed = llama_decode(context, batch);
    for (int32_t i = 0; logits && !failed && i < n; i++)
        memcpy(logits + (size_t)i * n_vocab, llama_get_logits_ith(context, i),
               n_vocab * sizeof(float));
    llama_batch_free(batch);
    return failed;
}

int32_t play_best(const float *logits, int32_t n)
{
    int32_t top = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[top])
            top = i;
    return top;
}

double play_nmse(const float *a, const float *b, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        error += d * d;
        size += (double)a[i] * (double)a[i];
    }
    return error / size;
}
