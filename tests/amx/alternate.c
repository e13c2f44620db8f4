/* Tile state is configured for every tile that is run and put back, whoever else uses the tiles.
 *
 * Several threads run several plans in turn, and between any two runs code of the host uses the
 * unit in its own way. The results are those of a lone thread; a configuration that the host had
 * left is there on return, and none where it had left none; and the host's results are right, also
 * those of products for which it does not configure the unit again. On the model counters tell;
 * `alternate hardware` asks the unit, `alternate emulated` an emulation of its instructions. */
#define _DEFAULT_SOURCE
#define HEED_AMX_MODEL
#include "emulate.h"
#include "tile.h"

#include "../unit/unit.h"

#include <pthread.h>

enum { THREADS = 3, TURNS = 4, PLANS = 3, ROWS = 70, KEYS = 300, MOST_DIM = 96 };

static const uint32_t dims[PLANS] = {64, MOST_DIM, 40};
static int hardware, emulated; /* emulated implies hardware */
static uint16_t q[ROWS][MOST_DIM], k[KEYS][MOST_DIM], v[KEYS][MOST_DIM];

/* ---- the host's own use of the tiles: [8 x 32] x [32 x 8] products of small integers --------- */

enum { HOSTS = 7 }; /* in_use of the model with a configuration of the host */
/* The host's configuration that is in effect on this thread; palette 0: none. */
static _Thread_local uint8_t hosts[64];

/* Is the unit as the host left it: with the host's configuration, or (hosts_own 0) with none? */
static int is_left(int hosts_own)
{
#ifdef __x86_64__
    if (hardware) {
        static const uint8_t none[64];
        _Alignas(64) uint8_t config[64];
        __asm__ volatile("sttilecfg (%0)" ::"r"(config) : "memory");
        return hosts_own ? !memcmp(config, hosts, 64) : !memcmp(config, none, 64);
    }
#endif
    return heed_amx_model_count.in_use == (hosts_own ? HOSTS : 0) &&
           heed_amx_model_count.begins == heed_amx_model_count.ends;
}

/* Every other turn the host leaves its tiles in use, and does not configure them for its next
 * turn. */
static int host_hardware(uint32_t seed)
{
#ifdef __x86_64__
    _Alignas(64) uint8_t config[64] = {1};
    _Alignas(64) uint16_t a[8][32], b[16][16];
    _Alignas(64) float c[8][8];
    int wrong = 0;
    for (int n = 0; n < 3; n++) {
        config[16 + 2 * n] =
            n == 1 ? 64 : 32; /* bytes of a row: c 8 x f32, a 32 x bf16, b 8 pairs */
        config[48 + n] = n == 2 ? 16 : 8;
    }
    for (int m = 0; m < 8; m++)
        for (int i = 0; i < 32; i++)
            a[m][i] = heed_bf16_of_f32((float)((seed + (uint32_t)(m * 5 + i)) % 7));
    for (int i = 0; i < 16; i++)
        for (int n = 0; n < 16; n++)
            b[i][n] = heed_bf16_of_f32((float)((seed + (uint32_t)(i * 3 + n)) % 5));
    if (!hosts[0])
        __asm__ volatile("ldtilecfg (%0)" ::"r"(config) : "memory");
    __asm__ volatile("tilezero %%tmm0\n\ttileloadd (%0,%2,1), %%tmm1\n\t"
                     "tileloadd (%1,%3,1), %%tmm2\n\ttdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
                     "tilestored %%tmm0, (%4,%3,1)" ::"r"(a),
                     "r"(b), "r"((int64_t)64), "r"((int64_t)32), "r"(c)
                     : "memory");
    memcpy(hosts, config, sizeof hosts);
    if (seed % 2) {
        __asm__ volatile("tilerelease");
        hosts[0] = 0;
    }
    for (int m = 0; m < 8; m++)
        for (int n = 0; n < 8; n++) {
            float sum = 0;
            for (int i = 0; i < 32; i++)
                sum += heed_f32_of_bf16(a[m][i]) * heed_f32_of_bf16(b[i / 2][2 * n + i % 2]);
            wrong += sum != c[m][n];
        }
    return wrong;
#else
    (void)seed;
    return 1;
#endif
}

static int host_model(uint32_t seed)
{
    tile_unit unit;
    static const uint32_t ones[256] = {[0] = 0x3f803f80};
    float c[256];
    tile_begin(&unit);
    tile_zero(&unit, 0);
    tile_load(&unit, 1, ones, 64);
    for (uint32_t n = 0; n <= seed % 3; n++)
        tile_product(&unit, 0, 1, 1);
    tile_store(&unit, 0, c, 64);
    tile_end(&unit);
    heed_amx_model_count.in_use = seed % 2 ? 0 : HOSTS;
    return c[0] != 2 * (float)(seed % 3 + 1);
}

/* ---- heed's use of the tiles ----------------------------------------------------------------- */

static heed_context *context;
static heed_attn *plan[PLANS];
static float alone[PLANS][ROWS][MOST_DIM];

static heed_attn_args args_of(float out[ROWS][MOST_DIM])
{
    return (heed_attn_args){.struct_size = sizeof(heed_attn_args),
                            .batch = 1,
                            .q_len = ROWS,
                            .kv_len = KEYS,
                            .q = {q, {0, 0, MOST_DIM, 1}},
                            .k = {k, {0, 0, MOST_DIM, 1}},
                            .v = {v, {0, 0, MOST_DIM, 1}},
                            .out = {out, {0, 0, MOST_DIM, 1}}};
}

/* Returns 0, or -1 where the unit cannot be used. */
static int make_plans(void)
{
    static heed_backend
        table; /* not the plugin's, which may be there too: it has its own counters */
    table = emulated ? *heed_amx_backend() : *heed_amx_model_backend();
    table.name = "amx_counted";
    if (emulated)
        table.open = heed_amx_emulate;
    context = unit_context(1, hardware && !emulated ? "amx" : table.name);
    if (!hardware || emulated)
        CHECK_OK(heed_context_register(context, &table));
    for (int n = 0; n < PLANS; n++) {
        heed_attn_desc desc = {.struct_size = sizeof desc,
                               .features = n == 2 ? HEED_HAS_CAUSAL : 0,
                               .position = n == 2 ? HEED_POS_BOTTOM_RIGHT : HEED_POS_UNSET,
                               UNIT_SHAPE(1, 1, dims[n], dims[n]),
                               UNIT_TYPES(HEED_BF16, HEED_BF16, HEED_BF16, HEED_F32),
                               .accuracy = n == 1 ? HEED_ACCURACY_SPLIT : HEED_ACCURACY_BF16,
                               .max_batch = 1,
                               .max_q_len = ROWS,
                               .max_kv_len = KEYS};
        if (heed_attn_create(context, &desc, &plan[n]) != HEED_OK) {
            printf("%s\n", heed_last_error());
            return -1;
        }
        heed_attn_args args = args_of(alone[n]);
        CHECK_OK(heed_attn_run(plan[n], &args, NULL, 0));
        CHECK(is_left(0), "plan %d leaves the unit configured", n);
        CHECK(alone[n][ROWS - 1][dims[n] - 1] != 0, "plan %d wrote nothing", n);
    }
    return 0;
}

typedef struct turn_taker {
    pthread_t thread;
    uint32_t seed;
    int wrong;
} turn_taker;

static void *take_turns(void *arg)
{
    turn_taker *t = arg;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        static _Thread_local float out[ROWS][MOST_DIM];
        int n = (int)((t->seed + turn) % PLANS);
        heed_attn_args args = args_of(out);
        memset(out, 0, sizeof out);
        t->wrong += hardware ? host_hardware(t->seed + turn) : host_model(t->seed + turn);
        t->wrong += heed_attn_run(plan[n], &args, NULL, 0) != HEED_OK;
        t->wrong += !is_left((t->seed + turn) % 2 == 0);
        for (int i = 0; i < ROWS; i++)
            t->wrong += memcmp(out[i], alone[n][i], dims[n] * sizeof(float)) != 0;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    turn_taker taker[THREADS];
    uint64_t seed = 7;
    emulated = argc > 1 && !strcmp(argv[1], "emulated");
    hardware = emulated || (argc > 1 && !strcmp(argv[1], "hardware"));
    for (int j = 0; j < KEYS; j++)
        for (int d = 0; d < MOST_DIM; d++) {
            k[j][d] = heed_bf16_of_f32(unit_number(&seed));
            v[j][d] = heed_bf16_of_f32(unit_number(&seed));
            if (j < ROWS)
                q[j][d] = heed_bf16_of_f32(unit_number(&seed));
        }
    if (make_plans() != 0)
        return hardware ? 77 : 1;
    if (!hardware)
        CHECK(heed_amx_model_count.begins > 0, "the model was not used");
    for (uint32_t n = 0; n < THREADS; n++) {
        taker[n] = (turn_taker){.seed = n};
        CHECK(pthread_create(&taker[n].thread, NULL, take_turns, &taker[n]) == 0, "no thread %u",
              n);
    }
    for (int n = 0; n < THREADS; n++) {
        pthread_join(taker[n].thread, NULL);
        CHECK(taker[n].wrong == 0, "thread %d: %d things are wrong", n, taker[n].wrong);
    }
    for (int n = 0; n < PLANS; n++)
        heed_attn_release(plan[n]);
    heed_context_release(context);
    return checks_end();
}
