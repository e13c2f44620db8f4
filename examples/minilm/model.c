/* Reads a BERT encoder from its files. A setting that the engine does not support is refused by
 * name. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/weights.h"

/* Limits far above any encoder, which keep sizes from overflowing. */
enum {
    MOST_TOKENS = 512,
    MOST_WIDTH = 1 << 16,
    MOST_LAYERS = 1024,
    MOST_POSITIONS = 1 << 20,
    MOST_WORDS = 1 << 24
};

static heed_status read_config(model *m, heed_error *why)
{
    static const char name[] = "config.json";
    cJSON *config = NULL;
    heed_status status =
        json_parse(m->files.config.bytes, m->files.config.size, name, &config, why);
    struct {
        const char *key;
        int64_t most, *out;
    } numbers[] = {
        {"hidden_size", MOST_WIDTH, &m->width},
        {"num_attention_heads", MOST_WIDTH, &m->heads},
        {"num_hidden_layers", MOST_LAYERS, &m->n_layers},
        {"intermediate_size", MOST_WIDTH, &m->inner},
        {"max_position_embeddings", MOST_POSITIONS, &m->positions},
        {"vocab_size", MOST_WORDS, &m->vocabulary_size},
        {"type_vocab_size", MOST_WORDS, &m->segments_size},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == HEED_OK; i++)
        status =
            json_get_integer(config, name, numbers[i].key, 1, numbers[i].most, numbers[i].out, why);
    if (status == HEED_OK)
        status = json_get_number(config, name, "layer_norm_eps", 1, &m->eps, why);
    const cJSON *act = cJSON_GetObjectItemCaseSensitive(config, "hidden_act");
    if (status == HEED_OK && !(cJSON_IsString(act) && strcmp(act->valuestring, "gelu") == 0))
        status = refuse(why, "%s: hidden_act is not gelu, the only one served", name);
    if (status == HEED_OK && m->width % m->heads != 0)
        status = refuse(why, "%s: hidden_size %lld is no multiple of num_attention_heads %lld",
                        name, (long long)m->width, (long long)m->heads);
    if (status == HEED_OK && m->positions < 2)
        status =
            refuse(why, "%s: max_position_embeddings leaves no room for [CLS] and [SEP]", name);
    cJSON_Delete(config);
    return status;
}

/* Refuses settings of the tokenizer that are false: served is what they switch off. null is the
 * default. */
static heed_status refuse_tokens(const cJSON *config, const char *name, heed_error *why)
{
    static const char *const on[] = {"do_lower_case", "strip_accents", "tokenize_chinese_chars"};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++)
        if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(config, on[i])))
            return refuse(why, "%s: %s is false, which is not served", name, on[i]);
    return HEED_OK;
}

/* Refuses any pooling but the mean. More than one that is true asks for vectors side by side. */
static heed_status refuse_pooling(const cJSON *config, const char *name, heed_error *why)
{
    static const char prefix[] = "pooling_mode_", mean[] = "pooling_mode_mean_tokens";
    const cJSON *mode;
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, mean)))
        return refuse(why, "%s: %s is not true", name, mean);
    cJSON_ArrayForEach(mode, config)
    {
        if (strncmp(mode->string, prefix, sizeof prefix - 1) == 0 &&
            strcmp(mode->string, mean) != 0 && cJSON_IsTrue(mode))
            return refuse(why, "%s: %.60s is true; the mean is the only one served", name,
                          mode->string);
    }
    return HEED_OK;
}

/* Reads how texts are cut, split and pooled; files that are missing leave the defaults. */
static heed_status read_conventions(model *m, heed_error *why)
{
    struct {
        const file *f;
        const char *name;
        cJSON *value;
    } sentence = {&m->files.sentence, "sentence_bert_config.json", NULL},
      tokens = {&m->files.tokenizer, "tokenizer_config.json", NULL},
      pooling = {&m->files.pooling, "1_Pooling/config.json", NULL};
    heed_status status = HEED_OK;
    m->most_tokens = m->positions < MOST_TOKENS ? m->positions : MOST_TOKENS;

    if (sentence.f->bytes) {
        status =
            json_parse(sentence.f->bytes, sentence.f->size, sentence.name, &sentence.value, why);
        if (status == HEED_OK)
            status = json_get_integer(sentence.value, sentence.name, "max_seq_length", 2,
                                      m->positions, &m->most_tokens, why);
    }
    if (status == HEED_OK && tokens.f->bytes) {
        status = json_parse(tokens.f->bytes, tokens.f->size, tokens.name, &tokens.value, why);
        if (status == HEED_OK)
            status = refuse_tokens(tokens.value, tokens.name, why);
    }
    if (status == HEED_OK && pooling.f->bytes) {
        status = json_parse(pooling.f->bytes, pooling.f->size, pooling.name, &pooling.value, why);
        if (status == HEED_OK)
            status = refuse_pooling(pooling.value, pooling.name, why);
    }
    cJSON_Delete(sentence.value);
    cJSON_Delete(tokens.value);
    cJSON_Delete(pooling.value);
    return status;
}

static heed_status read_norm(const model *m, const char *prefix, const char *name, model_norm *out,
                             heed_error *why)
{
    char full[200];
    snprintf(full, sizeof full, "%s%s.weight", prefix, name);
    heed_status status = weights_vector(&m->weights, full, m->width, &out->weight, why);
    snprintf(full, sizeof full, "%s%s.bias", prefix, name);
    return status == HEED_OK ? weights_vector(&m->weights, full, m->width, &out->bias, why)
                             : status;
}

static heed_status read_layer(model *m, int64_t index, heed_error *why)
{
    model_layer *layer = &m->layers[index];
    int64_t w = m->width;
    char prefix[64];
    const struct {
        linear_spec spec;
        heed_linear **out;
    } linears[] = {
        {{.name = {"attention.self.query", "attention.self.key", "attention.self.value"},
          .in_dim = w,
          .out_dim = {w, w, w}},
         &layer->qkv},
        {{.name = {"attention.output.dense"}, .in_dim = w, .out_dim = {w}, .residual = 1},
         &layer->out},
        {{.name = {"intermediate.dense"},
          .in_dim = w,
          .out_dim = {m->inner},
          .activation = HEED_ACT_GELU},
         &layer->up},
        {{.name = {"output.dense"}, .in_dim = m->inner, .out_dim = {w}, .residual = 1},
         &layer->down},
    };
    snprintf(prefix, sizeof prefix, "encoder.layer.%d.", (int)index);
    heed_status status = HEED_OK;
    for (size_t i = 0; i < sizeof linears / sizeof linears[0] && status == HEED_OK; i++) {
        linear_spec spec = linears[i].spec;
        spec.type = m->type;
        spec.bias = 1;
        status = weights_linear(m->context, &m->weights, prefix, &spec, linears[i].out, why);
    }
    if (status == HEED_OK)
        status = read_norm(m, prefix, "attention.output.LayerNorm", &layer->after_attention, why);
    if (status == HEED_OK)
        status = read_norm(m, prefix, "output.LayerNorm", &layer->after_inner, why);
    return status;
}

static heed_status read_embeddings(model *m, heed_error *why)
{
    const safetensors *weights = &m->weights;
    int64_t w = m->width;
    heed_status status = safetensors_find(weights, "embeddings.word_embeddings.weight", 2,
                                          (const int64_t[]){m->vocabulary_size, w}, &m->words, why);
    if (status == HEED_OK)
        status = safetensors_find(weights, "embeddings.position_embeddings.weight", 2,
                                  (const int64_t[]){m->positions, w}, &m->places, why);
    if (status == HEED_OK)
        status = safetensors_find(weights, "embeddings.token_type_embeddings.weight", 2,
                                  (const int64_t[]){m->segments_size, w}, &m->segments, why);
    return status == HEED_OK ? read_norm(m, "embeddings.", "LayerNorm", &m->embedding_norm, why)
                             : status;
}

static heed_status read_all(model *m, uint32_t n_threads, heed_error *why)
{
    heed_context_options options = {.struct_size = sizeof options, .n_threads = n_threads};
    heed_status status = read_config(m, why);
    if (status == HEED_OK)
        status = read_conventions(m, why);
    if (status == HEED_OK)
        status = tokenizer_create(m->files.vocabulary, m->vocabulary_size, &m->tokenizer, why);
    if (status == HEED_OK)
        status = safetensors_open(m->files.weights, "model.safetensors", &m->weights, why);
    if (status == HEED_OK)
        status = read_embeddings(m, why);
    if (status == HEED_OK && (status = heed_context_create(&options, &m->context)) != HEED_OK)
        snprintf(why->text, sizeof why->text, "%s", heed_last_error());
    if (status == HEED_OK && !(m->layers = calloc((size_t)m->n_layers, sizeof *m->layers)))
        status = no_memory(why, "the layers");
    for (int64_t i = 0; i < m->n_layers && status == HEED_OK; i++)
        status = read_layer(m, i, why);
    return status;
}

heed_status model_read(const model_files *files, uint32_t type, uint32_t n_threads, model *out,
                       heed_error *why)
{
    model m = {.type = type, .files = *files};
    heed_status status = read_all(&m, n_threads, why);
    if (status != HEED_OK) {
        model_close(&m);
        return status;
    }
    *out = m;
    return HEED_OK;
}

static void close_files(model_files *files)
{
    file_close(&files->config);
    file_close(&files->vocabulary);
    file_close(&files->weights);
    file_close(&files->tokenizer);
    file_close(&files->sentence);
    file_close(&files->pooling);
}

heed_status model_open(const char *folder, uint32_t type, uint32_t n_threads, model *out,
                       heed_error *why)
{
    model_files files = {0};
    const struct {
        const char *name;
        int optional;
        file *f;
    } parts[] = {
        {"config.json", 0, &files.config},
        {"vocab.txt", 0, &files.vocabulary},
        {"model.safetensors", 0, &files.weights},
        {"tokenizer_config.json", 1, &files.tokenizer},
        {"sentence_bert_config.json", 1, &files.sentence},
        {"1_Pooling/config.json", 1, &files.pooling},
    };
    heed_status status = HEED_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == HEED_OK; i++)
        status = file_open_in(folder, parts[i].name, parts[i].optional, parts[i].f, why);
    if (status == HEED_OK)
        return model_read(&files, type, n_threads, out, why);
    close_files(&files);
    return status;
}

static void free_norm(model_norm *norm)
{
    free(norm->weight);
    free(norm->bias);
}

void model_close(model *m)
{
    for (int64_t i = 0; m->layers && i < m->n_layers; i++) {
        model_layer *layer = &m->layers[i];
        heed_linear_release(layer->qkv);
        heed_linear_release(layer->out);
        heed_linear_release(layer->up);
        heed_linear_release(layer->down);
        free_norm(&layer->after_attention);
        free_norm(&layer->after_inner);
    }
    free(m->layers);
    free_norm(&m->embedding_norm);
    heed_context_release(m->context);
    safetensors_close(&m->weights);
    tokenizer_free(m->tokenizer);
    close_files(&m->files);
    *m = (model){0};
}
