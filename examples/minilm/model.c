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

static const char weights_name[] = "model.safetensors";

/* Refuses optional settings unless they have the value that the engine supports. */
static heed_status refuse_options(const cJSON *config, const char *name, heed_error *why)
{
    static const struct {
        const char *key, *text;
    } only[] = {{"model_type", "bert"}, {"position_embedding_type", "absolute"}};
    static const char *const off[] = {"is_decoder", "add_cross_attention"};
    for (size_t i = 0; i < sizeof only / sizeof only[0]; i++) {
        const cJSON *value = json_setting(config, only[i].key);
        if (value && !json_is_text(value, only[i].text))
            return refuse(why, "%s: %s is not %s, the only one served", name, only[i].key,
                          only[i].text);
    }
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        const cJSON *value = json_setting(config, off[i]);
        if (value && !cJSON_IsFalse(value))
            return refuse(why, "%s: %s is not false, which alone is served", name, off[i]);
    }
    if (!json_is_text(json_setting(config, "hidden_act"), "gelu"))
        return refuse(why, "%s: hidden_act is not gelu, the only one served", name);
    return HEED_OK;
}

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
    if (status == HEED_OK)
        status = refuse_options(config, name, why);
    if (status == HEED_OK && m->width % m->heads != 0)
        status = refuse(why, "%s: hidden_size %lld is no multiple of num_attention_heads %lld",
                        name, (long long)m->width, (long long)m->heads);
    if (status == HEED_OK && m->positions < 2)
        status =
            refuse(why, "%s: max_position_embeddings leaves no room for [CLS] and [SEP]", name);
    cJSON_Delete(config);
    return status;
}

static heed_status read_length(const cJSON *config, const char *name, model *m, heed_error *why)
{
    return json_get_integer(config, name, "max_seq_length", 2, m->positions, &m->most_tokens, why);
}

/* Refuses settings of the tokenizer that are false: served is what they switch off. null is the
 * default. */
static heed_status refuse_tokens(const cJSON *config, const char *name, model *m, heed_error *why)
{
    static const char *const on[] = {"do_lower_case", "strip_accents", "tokenize_chinese_chars"};
    (void)m;
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++)
        if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(config, on[i])))
            return refuse(why, "%s: %s is false, which is not served", name, on[i]);
    return HEED_OK;
}

/* Refuses any pooling but the mean. More than one that is true asks for vectors side by side. */
static heed_status refuse_pooling(const cJSON *config, const char *name, model *m, heed_error *why)
{
    static const char prefix[] = "pooling_mode_", mean[] = "pooling_mode_mean_tokens";
    const cJSON *mode;
    (void)m;
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

/* Refuses modules other than the encoder, its pooling and, if it is listed, Normalize, which the
 * engine always does. Their types are names of Python classes. */
static heed_status refuse_modules(const cJSON *list, const char *name, model *m, heed_error *why)
{
    static const char prefix[] = "sentence_transformers.";
    static const struct {
        const char *type, *path;
    } served[] = {{".Transformer", ""}, {".Pooling", "1_Pooling"}, {".Normalize", NULL}};
    const cJSON *one;
    int n = 0;
    (void)m;
    if (!cJSON_IsArray(list))
        return refuse(why, "%s: is no list of modules", name);
    cJSON_ArrayForEach(one, list)
    {
        const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(one, "type"));
        const char *path = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(one, "path"));
        if (n == 3 || !type || !path || strncmp(type, prefix, sizeof prefix - 1) != 0 ||
            !ends_with(type, served[n].type) ||
            (served[n].path && strcmp(path, served[n].path) != 0))
            return refuse(why, "%s: module %d is %.60s in %.60s, which is not served", name, n + 1,
                          type ? type : "of no type", path && *path ? path : "the folder itself");
        n++;
    }
    return n >= 2 ? HEED_OK : refuse(why, "%s: no module is a %s", name, served[n].type + 1);
}

/* Reads how texts are cut, split and pooled; files that are missing leave the defaults. */
static heed_status read_conventions(model *m, heed_error *why)
{
    const struct {
        const file *f;
        const char *name;
        heed_status (*read)(const cJSON *value, const char *name, model *m, heed_error *why);
    } parts[] = {
        {&m->files.sentence, "sentence_bert_config.json", read_length},
        {&m->files.tokenizer, "tokenizer_config.json", refuse_tokens},
        {&m->files.pooling, "1_Pooling/config.json", refuse_pooling},
        {&m->files.modules, "modules.json", refuse_modules},
    };
    heed_status status = HEED_OK;
    m->most_tokens = m->positions < MOST_TOKENS ? m->positions : MOST_TOKENS;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == HEED_OK; i++) {
        cJSON *value = NULL;
        if (!parts[i].f->bytes)
            continue;
        status = json_parse(parts[i].f->bytes, parts[i].f->size, parts[i].name, &value, why);
        if (status == HEED_OK)
            status = parts[i].read(value, parts[i].name, m, why);
        cJSON_Delete(value);
    }
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

/* Refuses tensors of the encoder that no weight was made of, such as relative positions. Older files
 * hold the numbers of the positions, 0, 1, 2 ... */
static heed_status refuse_tensors(const safetensors *weights, heed_error *why)
{
    heed_status status =
        safetensors_refuse_rest(weights, weights_name, "encoder.", ".position_ids", why);
    return status == HEED_OK
               ? safetensors_refuse_rest(weights, weights_name, "embeddings.", ".position_ids", why)
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
        status = safetensors_open(m->files.weights, weights_name, &m->weights, why);
    if (status == HEED_OK)
        status = read_embeddings(m, why);
    if (status == HEED_OK)
        status = pass_on(heed_context_create(&options, &m->context), why);
    if (status == HEED_OK && !(m->layers = calloc((size_t)m->n_layers, sizeof *m->layers)))
        status = no_memory(why, "the layers");
    for (int64_t i = 0; i < m->n_layers && status == HEED_OK; i++)
        status = read_layer(m, i, why);
    if (status == HEED_OK)
        status = refuse_tensors(&m->weights, why);
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
    file_close(&files->modules);
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
        {weights_name, 0, &files.weights},
        {"tokenizer_config.json", 1, &files.tokenizer},
        {"sentence_bert_config.json", 1, &files.sentence},
        {"1_Pooling/config.json", 1, &files.pooling},
        {"modules.json", 1, &files.modules},
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
