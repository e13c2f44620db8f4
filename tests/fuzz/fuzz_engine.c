/* The loaders and the tokenizer of the engines, on files made of the input bytes: whatever they
 * hold, a model is refused with a message or computes something, and nothing outside the files is
 * read.
 *
 * The first byte chooses what the rest is: a file of weights, the header of one, a config, a
 * vocabulary with a text, a text, or changes to a few bytes of a small valid model. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/common/safetensors.h"
#include "../../examples/decoder/step.h"
#include "../../examples/minilm/encode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_engine: %s\n", what);
    abort();
}

/* ---- a valid model of each kind -------------------------------------------------------------- */

enum { WIDTH = 4, INNER = 6, WORDS = 16, PLACES = 8, ROOM = 8192 };

static const char encoder_config[] =
    "{\"hidden_size\": 4, \"num_attention_heads\": 2, \"num_hidden_layers\": 1, "
    "\"intermediate_size\": 6, \"max_position_embeddings\": 8, \"vocab_size\": 16, "
    "\"type_vocab_size\": 2, \"layer_norm_eps\": 1e-12, \"hidden_act\": \"gelu\"}";
static const char decoder_config[] =
    "{\"hidden_size\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"num_hidden_layers\": 1, \"intermediate_size\": 6, \"max_position_embeddings\": 8, "
    "\"vocab_size\": 16, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500, \"hidden_act\": \"silu\"}";
static const char vocabulary[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\n##b\nab\n!\n[\n]\n##ab\n"
    "\xe4\xb8\x80\n\xc3\xb8\n";

typedef struct shape {
    const char *name;
    int rows, cols; /* cols is 0 for a vector */
} shape;

static const shape encoder_shapes[] = {
    {"embeddings.word_embeddings.weight", WORDS, WIDTH},
    {"embeddings.position_embeddings.weight", PLACES, WIDTH},
    {"embeddings.token_type_embeddings.weight", 2, WIDTH},
    {"embeddings.LayerNorm.weight", WIDTH, 0},
    {"embeddings.LayerNorm.bias", WIDTH, 0},
    {"encoder.layer.0.attention.self.query.weight", WIDTH, WIDTH},
    {"encoder.layer.0.attention.self.query.bias", WIDTH, 0},
    {"encoder.layer.0.attention.self.key.weight", WIDTH, WIDTH},
    {"encoder.layer.0.attention.self.key.bias", WIDTH, 0},
    {"encoder.layer.0.attention.self.value.weight", WIDTH, WIDTH},
    {"encoder.layer.0.attention.self.value.bias", WIDTH, 0},
    {"encoder.layer.0.attention.output.dense.weight", WIDTH, WIDTH},
    {"encoder.layer.0.attention.output.dense.bias", WIDTH, 0},
    {"encoder.layer.0.attention.output.LayerNorm.weight", WIDTH, 0},
    {"encoder.layer.0.attention.output.LayerNorm.bias", WIDTH, 0},
    {"encoder.layer.0.intermediate.dense.weight", INNER, WIDTH},
    {"encoder.layer.0.intermediate.dense.bias", INNER, 0},
    {"encoder.layer.0.output.dense.weight", WIDTH, INNER},
    {"encoder.layer.0.output.dense.bias", WIDTH, 0},
    {"encoder.layer.0.output.LayerNorm.weight", WIDTH, 0},
    {"encoder.layer.0.output.LayerNorm.bias", WIDTH, 0},
};
static const shape decoder_shapes[] = {
    {"model.embed_tokens.weight", WORDS, WIDTH},
    {"model.norm.weight", WIDTH, 0},
    {"lm_head.weight", WORDS, WIDTH},
    {"model.layers.0.input_layernorm.weight", WIDTH, 0},
    {"model.layers.0.post_attention_layernorm.weight", WIDTH, 0},
    {"model.layers.0.self_attn.q_proj.weight", WIDTH, WIDTH},
    {"model.layers.0.self_attn.k_proj.weight", WIDTH / 2, WIDTH},
    {"model.layers.0.self_attn.v_proj.weight", WIDTH / 2, WIDTH},
    {"model.layers.0.self_attn.o_proj.weight", WIDTH, WIDTH},
    {"model.layers.0.mlp.gate_proj.weight", INNER, WIDTH},
    {"model.layers.0.mlp.up_proj.weight", INNER, WIDTH},
    {"model.layers.0.mlp.down_proj.weight", WIDTH, INNER},
};

/* Writes a file of weights in bf16 to out, which holds ROOM bytes, and returns its size. */
static size_t make_weights(const shape *shapes, size_t n, unsigned char *out)
{
    char *text = (char *)out + 8;
    size_t used = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        int cols = shapes[i].cols;
        size_t bytes = 2 * (size_t)shapes[i].rows * (cols ? (size_t)cols : 1);
        used += (size_t)snprintf(text + used, ROOM - 8 - used,
                                 "%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [%d%s%.0d], "
                                 "\"data_offsets\": [%zu, %zu]}",
                                 i ? ", " : "{", shapes[i].name, shapes[i].rows, cols ? ", " : "",
                                 cols, at, at + bytes);
        at += bytes;
    }
    text[used++] = '}';
    for (size_t i = 0; i < 8; i++)
        out[i] = (unsigned char)(used >> 8 * i);
    require(8 + used + at <= ROOM, "a model needs more room");
    for (size_t i = 0; i < at; i++) /* numbers of about 0.5 to 1, of either sign */
        text[used + i] = (char)(i % 2 ? (i % 4 == 1 ? 0x3f : 0xbf) : (i * 37) & 127);
    return 8 + used + at;
}

/* ---- what is done with files ----------------------------------------------------------------- */

static volatile unsigned sink; /* keeps the reads from being optimised away */

static void read_everything(file f)
{
    safetensors weights;
    heed_error why = {""};
    if (safetensors_open(f, "w", &weights, &why) != HEED_OK) {
        require(why.text[0] != '\0', "refused without a sentence");
        return;
    }
    for (size_t i = 0; i < weights.n; i++) {
        const tensor *t = &weights.tensors[i];
        int64_t elements = 1;
        for (size_t b = 0; b < t->bytes; b++)
            sink += t->data[b];
        for (int d = 0; d < t->n_dims; d++)
            elements *= t->shape[d];
        for (int64_t e = 0; t->type != HEED_DTYPE_NONE && e < elements; e++) {
            float x;
            tensor_to_f32(t, e, 1, &x);
            sink += x > 0;
        }
    }
    safetensors_close(&weights);
}

static void tokenize(file words, const char *text, size_t bytes)
{
    enum { MOST = 12 };
    tokenizer *t;
    heed_error why = {""};
    int32_t ids[MOST];
    if (tokenizer_create(words, 1 << 20, &t, &why) != HEED_OK) {
        require(why.text[0] != '\0', "refused without a sentence");
        return;
    }
    for (int most = 2; most <= MOST; most += 5) {
        int n = 0;
        require(tokenizer_encode(t, text, bytes, ids, most, &n, &why) == HEED_OK, why.text);
        require(n >= 2 && n <= most, "number of ids");
        for (int i = 0; i < n; i++) {
            size_t length;
            const char *token = tokenizer_token(t, ids[i], &length);
            for (size_t b = 0; b < length; b++)
                sink += (unsigned char)token[b];
        }
    }
    tokenizer_free(t);
}

/* A word of as many letters as a word may have, each of four bytes that are a piece each. */
static void tokenize_letters_of_pieces(void)
{
    enum { LETTERS = 100, BYTES = 4 * LETTERS, MOST = BYTES + 2 };
    static const char pieces[] = "[UNK]\n[CLS]\n[SEP]\n\xf0\n##\xf0\n##\x90\n##\xa8\n";
    static const int32_t inside[] = {4, 5, 5, 6};
    char word[BYTES];
    int32_t ids[MOST];
    int n = 0;
    tokenizer *t;
    heed_error why = {""};
    for (int i = 0; i < BYTES; i += 4)
        memcpy(word + i, "\xf0\x90\x90\xa8", 4);
    require(tokenizer_create((file){(const unsigned char *)pieces, strlen(pieces), 0}, MOST, &t,
                             &why) == HEED_OK,
            why.text);
    require(tokenizer_encode(t, word, BYTES, ids, MOST, &n, &why) == HEED_OK, why.text);
    require(n == MOST, "a word has fewer pieces than bytes");
    for (int i = 1; i < n - 1; i++)
        require(ids[i] == (i == 1 ? 3 : inside[(i - 1) % 4]), "another piece");
    tokenizer_free(t);
}

/* Loads a model and encodes a text with it. Returns whether the files were a model. */
static int encode(const model_files *files, const char *text, size_t bytes)
{
    model m;
    encoder *e = NULL;
    heed_error why = {""};
    if (model_read(files, bytes % 2 ? HEED_F32 : HEED_BF16, 1, &m, &why) != HEED_OK) {
        require(why.text[0] != '\0', "refused without a sentence");
        return 0;
    }
    int32_t *ids = malloc((size_t)m.most_tokens * sizeof *ids), start = 0, n = 0;
    float *out = malloc((size_t)m.width * sizeof *out);
    require(ids && out &&
                tokenizer_encode(m.tokenizer, text, bytes, ids, (int)m.most_tokens, &n, &why) ==
                    HEED_OK,
            why.text);
    const batch b = {1, n, n, ids, &start, &n};
    require(encoder_create(&m, n, 1, 0, &e, &why) == HEED_OK, why.text);
    require(encoder_embed(e, &b, out, &why) == HEED_OK, why.text);
    for (int64_t i = 0; i < m.width; i++)
        require(!(out[i] > 1.0001f || out[i] < -1.0001f), "an embedding longer than 1");
    encoder_free(e);
    free(out);
    free(ids);
    model_close(&m);
    return 1;
}

static int decode(file config, file weights, const uint8_t *text, size_t bytes)
{
    llama m;
    cache c = {0};
    stepper *s = NULL;
    sequence one = {0};
    heed_error why = {""};
    if (llama_read(config, weights, bytes % 2 ? HEED_F32 : HEED_BF16, 1, &m, &why) != HEED_OK) {
        require(why.text[0] != '\0', "refused without a sentence");
        return 0;
    }
    float *logits = malloc((size_t)m.vocabulary_size * sizeof *logits);
    int64_t most = m.positions < 5 ? m.positions : 5;
    require(logits && cache_create(&m, m.type, 2, 3, &c, &why) == HEED_OK, why.text);
    require(stepper_create(&m, &c, most, 1, most, 0, &s, &why) == HEED_OK, why.text);
    for (size_t i = 0; i < bytes && one.length < most; i++) {
        const int32_t token = text[i];
        const turn t = {&one, &token, 1};
        heed_status status = stepper_run(s, &t, 1, 0, logits, &why);
        require(status == HEED_OK || (token >= m.vocabulary_size && why.text[0] != '\0'), why.text);
    }
    cache_release(&c, &one);
    stepper_free(s);
    cache_free(&c);
    free(logits);
    llama_close(&m);
    return 1;
}

/* ---- from bytes ------------------------------------------------------------------------------ */

/* Copies the bytes to memory of their own, so that the sanitizer knows where they end. */
static file copy_of(const void *bytes, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    require(copy != NULL, "no memory");
    memcpy(copy, bytes, size);
    return (file){copy, size, 0};
}

static void free_copy(file f)
{
    free((void *)(uintptr_t)f.bytes);
}

/* A valid model with up to three bytes changed. The data are the number of changes, for each a
 * place (two bytes) and a value, and then a text. */
static int change_model(int decoder, const uint8_t *data, size_t size)
{
    static unsigned char weights[2][ROOM];
    static size_t weights_size[2];
    if (weights_size[0] == 0) {
        weights_size[0] = make_weights(
            encoder_shapes, sizeof encoder_shapes / sizeof encoder_shapes[0], weights[0]);
        weights_size[1] = make_weights(
            decoder_shapes, sizeof decoder_shapes / sizeof decoder_shapes[0], weights[1]);
    }
    const char *config = decoder ? decoder_config : encoder_config;
    file files[] = {copy_of(config, strlen(config)),
                    copy_of(weights[decoder], weights_size[decoder]),
                    copy_of(vocabulary, strlen(vocabulary))};
    unsigned changes = size > 0 ? data[0] % 4 : 0;
    data += size > 0;
    size -= size > 0;
    for (; changes > 0 && size >= 3; changes--, data += 3, size -= 3) {
        size_t place = data[0] + 256u * data[1];
        const file *f = &files[place % 4 == 3 ? 2 : place % 4 == 2 ? 0 : 1];
        ((unsigned char *)(uintptr_t)f->bytes)[place / 4 % f->size] = data[2];
    }
    int is_model =
        decoder
            ? decode(files[0], files[1], data, size)
            : encode(
                  &(model_files){.config = files[0], .weights = files[1], .vocabulary = files[2]},
                  (const char *)data, size);
    for (int i = 0; i < 3; i++)
        free_copy(files[i]);
    return is_model;
}

/* A file of weights with `size` bytes of data as its header, followed by some numbers. */
static void change_header(const uint8_t *data, size_t size)
{
    unsigned char *whole = calloc(1, 8 + size + 16);
    require(whole != NULL, "no memory");
    for (size_t i = 0; i < 8; i++)
        whole[i] = (unsigned char)(size >> 8 * i);
    memcpy(whole + 8, data, size);
    file f = copy_of(whole, 8 + size + 16);
    read_everything(f);
    free_copy(f);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int tried;
    if (!tried++) { /* the models that are changed below are valid before */
        require(change_model(0, (const uint8_t *)"", 0) &&
                    change_model(1, (const uint8_t *)"\0\5\6", 3),
                "the unchanged models are refused");
        tokenize_letters_of_pieces();
    }
    if (size == 0)
        return 0;
    unsigned kind = data[0] % 8;
    file rest = copy_of(data + 1, size - 1), words = copy_of(vocabulary, strlen(vocabulary));
    const uint8_t *cut = memchr(rest.bytes, 0, rest.size);
    size_t first = cut ? (size_t)(cut - rest.bytes) : rest.size;
    switch (kind) {
    case 0:
        read_everything(rest);
        break;
    case 1:
        change_header(rest.bytes, rest.size);
        break;
    case 2: /* a vocabulary, 0, a text */
        tokenize((file){rest.bytes, first, 0}, (const char *)rest.bytes + first, rest.size - first);
        break;
    case 3:
        tokenize(words, (const char *)rest.bytes, rest.size);
        break;
    case 4: /* a config */
        encode(&(model_files){.config = rest, .weights = rest, .vocabulary = words}, "ab", 2);
        break;
    case 5:
        decode(rest, rest, rest.bytes, rest.size);
        break;
    default:
        change_model(kind == 7, rest.bytes, rest.size);
    }
    free_copy(rest);
    free_copy(words);
    return 0;
}
