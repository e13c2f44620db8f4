/* Reads a Llama-style decoder from its files. A setting that the engine does not support is refused
 * by name. */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/weights.h"

/* Limits far above any decoder, which keep sizes from overflowing. */
enum { MOST_WIDTH = 1 << 16, MOST_LAYERS = 1024, MOST_POSITIONS = 1 << 24, MOST_WORDS = 1 << 24 };

static const char config_name[] = "config.json", weights_name[] = "model.safetensors";

static int is_one(const cJSON *value)
{
    return cJSON_IsNumber(value) && value->valuedouble == 1;
}

/* Refuses rotary positions that are scaled, or turn a part of each head. */
static heed_status refuse_rotations(const cJSON *config, heed_error *why)
{
    static const char *const names[] = {"rope_type", "type"}; /* older files have the second */
    const cJSON *old = json_setting(config, "rope_scaling");
    const cJSON *const places[] = {config, json_setting(config, "rope_parameters"), old};
    int scaled = old && !json_setting(old, names[0]) && !json_setting(old, names[1]);
    for (int i = 0; i < 3; i++) {
        const cJSON *part = json_setting(places[i], "partial_rotary_factor");
        if (part && !is_one(part))
            return refuse(why, "%s: partial_rotary_factor is not 1, the only one served",
                          config_name);
        for (int n = 0; n < 2 && i > 0; n++) {
            const cJSON *kind = json_setting(places[i], names[n]);
            scaled |= kind && !json_is_text(kind, "default");
        }
    }
    return scaled ? refuse(why, "%s: scaled rotary positions are not served", config_name)
                  : HEED_OK;
}

/* Refuses optional settings unless they have the value that the engine supports. */
static heed_status refuse_options(const cJSON *config, heed_error *why)
{
    static const char *const off[] = {"attention_bias", "mlp_bias"};
    const cJSON *kind = json_setting(config, "model_type"), *one;
    if (kind && !json_is_text(kind, "llama"))
        return refuse(why, "%s: model_type is not llama, the only one served", config_name);
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        if (cJSON_IsTrue(json_setting(config, off[i])))
            return refuse(why, "%s: %s is true; it is not served", config_name, off[i]);
    if (!json_is_text(json_setting(config, "hidden_act"), "silu"))
        return refuse(why, "%s: hidden_act is not silu, the only one served", config_name);
    if (json_setting(config, "sliding_window") &&
        !cJSON_IsFalse(json_setting(config, "use_sliding_window")))
        return refuse(why, "%s: sliding_window is given; windows are not served", config_name);
    cJSON_ArrayForEach(one, config)
    {
        if ((ends_with(one->string, "_multiplier") || strcmp(one->string, "logits_scaling") == 0) &&
            !cJSON_IsNull(one) && !is_one(one))
            return refuse(why, "%s: %.60s is not 1, the only one served", config_name, one->string);
    }
    return refuse_rotations(config, why);
}

static heed_status read_numbers(const cJSON *config, llama *m, heed_error *why)
{
    const struct {
        const char *key;
        int64_t most, *out;
    } numbers[] = {
        {"hidden_size", MOST_WIDTH, &m->width},
        {"num_attention_heads", MOST_WIDTH, &m->heads},
        {"num_key_value_heads", MOST_WIDTH, &m->kv_heads},
        {"num_hidden_layers", MOST_LAYERS, &m->n_layers},
        {"intermediate_size", MOST_WIDTH, &m->inner},
        {"max_position_embeddings", MOST_POSITIONS, &m->positions},
        {"vocab_size", MOST_WORDS, &m->vocabulary_size},
    };
    const cJSON *rope = json_setting(config, "rope_parameters");
    heed_status status = HEED_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == HEED_OK; i++)
        status = json_get_integer(config, config_name, numbers[i].key, 1, numbers[i].most,
                                  numbers[i].out, why);
    if (status != HEED_OK)
        return status;
    m->head_dim = m->width / m->heads;
    if (json_setting(config, "head_dim"))
        status =
            json_get_integer(config, config_name, "head_dim", 1, MOST_WIDTH, &m->head_dim, why);
    if (status == HEED_OK)
        status = json_get_number(config, config_name, "rms_norm_eps", 1, &m->eps, why);
    if (status == HEED_OK) /* older files have it at the top level */
        status = json_get_number(rope ? rope : config, config_name, "rope_theta", 1e12,
                                 &m->rope_base, why);
    return status;
}

static heed_status read_config(llama *m, int *tied, heed_error *why)
{
    cJSON *config = NULL;
    heed_status status = json_parse(m->config.bytes, m->config.size, config_name, &config, why);
    if (status == HEED_OK)
        status = refuse_options(config, why);
    if (status == HEED_OK)
        status = read_numbers(config, m, why);
    if (status == HEED_OK && m->heads % m->kv_heads != 0)
        status =
            refuse(why, "%s: num_attention_heads %lld is no multiple of num_key_value_heads %lld",
                   config_name, (long long)m->heads, (long long)m->kv_heads);
    if (status == HEED_OK && m->heads * m->head_dim > MOST_WIDTH)
        status = refuse(why, "%s: %lld heads of %lld dims: together they may have %d at most",
                        config_name, (long long)m->heads, (long long)m->head_dim, MOST_WIDTH);
    if (status == HEED_OK && (m->head_dim < 2 || m->head_dim % 2 != 0))
        status = refuse(why, "%s: heads of %lld dims: the rotation needs an even number",
                        config_name, (long long)m->head_dim);
    if (status == HEED_OK && !(m->rope_base >= 1))
        status = refuse(why, "%s: rope_theta is below 1", config_name);
    *tied = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, "tie_word_embeddings"));
    cJSON_Delete(config);
    return status;
}

static heed_status read_layer(llama *m, int64_t index, heed_error *why)
{
    llama_layer *layer = &m->layers[index];
    int64_t w = m->width, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    char prefix[64], name[128];
    const struct {
        linear_spec spec;
        heed_linear **out;
    } linears[] = {
        {{.name = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          .in_dim = w,
          .out_dim = {q, kv, kv}},
         &layer->qkv},
        {{.name = {"self_attn.o_proj"}, .in_dim = q, .out_dim = {w}, .residual = 1}, &layer->out},
        {{.name = {"mlp.gate_proj"},
          .in_dim = w,
          .out_dim = {m->inner},
          .activation = HEED_ACT_SILU},
         &layer->gate},
        {{.name = {"mlp.up_proj"}, .in_dim = w, .out_dim = {m->inner}}, &layer->up},
        {{.name = {"mlp.down_proj"}, .in_dim = m->inner, .out_dim = {w}, .residual = 1},
         &layer->down},
    };
    snprintf(prefix, sizeof prefix, "model.layers.%d.", (int)index);
    heed_status status = HEED_OK;
    for (size_t i = 0; i < sizeof linears / sizeof linears[0] && status == HEED_OK; i++) {
        linear_spec spec = linears[i].spec;
        spec.type = m->type;
        status = weights_linear(m->context, &m->weights, prefix, &spec, linears[i].out, why);
    }
    snprintf(name, sizeof name, "%sinput_layernorm.weight", prefix);
    if (status == HEED_OK)
        status = weights_vector(&m->weights, name, w, &layer->attention_norm, why);
    snprintf(name, sizeof name, "%spost_attention_layernorm.weight", prefix);
    if (status == HEED_OK)
        status = weights_vector(&m->weights, name, w, &layer->inner_norm, why);
    return status;
}

static heed_status read_all(llama *m, heed_error *why)
{
    heed_context_options options = {.struct_size = sizeof options, .n_threads = m->n_threads};
    int tied = 0;
    heed_status status = read_config(m, &tied, why);
    if (status == HEED_OK)
        status = safetensors_open(m->file_of_weights, weights_name, &m->weights, why);
    if (status == HEED_OK)
        status = safetensors_find(&m->weights, "model.embed_tokens.weight", 2,
                                  (const int64_t[]){m->vocabulary_size, m->width}, &m->words, why);
    if (status == HEED_OK)
        status = pass_on(heed_context_create(&options, &m->context), why);
    if (status == HEED_OK && !(m->layers = calloc((size_t)m->n_layers, sizeof *m->layers)))
        status = no_memory(why, "the layers");
    for (int64_t i = 0; i < m->n_layers && status == HEED_OK; i++)
        status = read_layer(m, i, why);
    if (status == HEED_OK) /* some older files hold the frequencies, which the engine computes */
        status = safetensors_refuse_rest(&m->weights, weights_name, "model.layers.",
                                         ".rotary_emb.inv_freq", why);
    if (status == HEED_OK)
        status = weights_vector(&m->weights, "model.norm.weight", m->width, &m->norm, why);
    if (status == HEED_OK) {
        linear_spec head = {.name = {tied ? "model.embed_tokens" : "lm_head"},
                            .in_dim = m->width,
                            .out_dim = {m->vocabulary_size},
                            .type = m->type,
                            .y_type = HEED_F32};
        status = weights_linear(m->context, &m->weights, "", &head, &m->head, why);
    }
    return status;
}

heed_status llama_read(file config, file weights, uint32_t type, uint32_t n_threads, llama *out,
                       heed_error *why)
{
    llama m = {.type = type, .n_threads = n_threads, .config = config, .file_of_weights = weights};
    heed_status status = read_all(&m, why);
    if (status != HEED_OK) {
        llama_close(&m);
        return status;
    }
    *out = m;
    return HEED_OK;
}

heed_status llama_open(const char *folder, uint32_t type, uint32_t n_threads, llama *out,
                       heed_error *why)
{
    file config = {0}, weights = {0};
    heed_status status = file_open_in(folder, config_name, 0, &config, why);
    if (status == HEED_OK)
        status = file_open_in(folder, weights_name, 0, &weights, why);
    if (status == HEED_OK)
        return llama_read(config, weights, type, n_threads, out, why);
    file_close(&config);
    return status;
}

void llama_close(llama *m)
{
    for (int64_t i = 0; m->layers && i < m->n_layers; i++) {
        llama_layer *layer = &m->layers[i];
        free(layer->attention_norm);
        free(layer->inner_norm);
        heed_linear_release(layer->qkv);
        heed_linear_release(layer->out);
        heed_linear_release(layer->gate);
        heed_linear_release(layer->up);
        heed_linear_release(layer->down);
    }
    free(m->layers);
    free(m->norm);
    heed_linear_release(m->head);
    heed_context_release(m->context);
    safetensors_close(&m->weights);
    file_close(&m->config);
    file_close(&m->file_of_weights);
    *m = (llama){0};
}
