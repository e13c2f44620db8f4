/*
 * The tile instructions, emulated in a handler of SIGILL: the kernels as they are compiled for the
 * hardware can be tested on any CPU with AVX-512, their encodings, strides and configuration
 * included. A step takes some microseconds.
 *
 * Follows LDTILECFG, STTILECFG, TILELOADD, TILERELEASE, TILESTORED, TILEZERO and TDPBF16PS in the
 * Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; for palette 1 of eight
 * registers of 16 rows x 64 bytes. What would be #UD or #GP there ends the process with a message.
 * Loads begin with row 0: start_row, of a load that a page fault has cut short, is refused.
 */
#define _GNU_SOURCE /* REG_RIP */
#define HEED_AMX_MODEL
#include "emulate.h"

#include "tile.h"

#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static _Thread_local struct {
    tile_config config; /* all zero: released */
    uint32_t reg[TILES][ROWS][ROW_BYTES / 4];
} unit;

static _Noreturn void stop(const char *what)
{
    static const char start[] = "tile instruction: ", end[] = "\n";
    (void)!write(2, start, sizeof start - 1);
    (void)!write(2, what, strlen(what));
    (void)!write(2, end, 1);
    abort();
}

static void require(int condition, const char *what)
{
    if (!condition)
        stop(what);
}

/* A VEX instruction of three opcode bytes. */
typedef struct instruction {
    int prefix, opcode, mod, reg, rm, v; /* prefix: 0 none, 1 66, 2 F3, 3 F2 */
    int bytes;
    char *at;       /* memory operand without its index */
    int64_t stride; /* scaled index */
} instruction;

static int64_t general(const ucontext_t *context, int n)
{
    static const int where[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[where[n]];
}

/* Returns 0 if the code at hand is no tile instruction. */
static int decode(const ucontext_t *context, instruction *i)
{
    const uint8_t *code = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP];
    int high_rm, high_index, n = 5;
    int32_t displacement = 0;
    if (code[0] != 0xc4 || (code[1] & 31) != 2 || code[2] >> 7 || (code[2] >> 2 & 1))
        return 0; /* C4, map 0F38, W0, 128 bits */
    *i = (instruction){.prefix = code[2] & 3,
                       .opcode = code[3],
                       .mod = code[4] >> 6,
                       .reg = code[4] >> 3 & 7,
                       .rm = code[4] & 7,
                       .v = ~code[2] >> 3 & 15};
    if (i->opcode != 0x49 && i->opcode != 0x4b && i->opcode != 0x5c)
        return 0;
    require(code[1] >> 7, "a register above tmm7");
    high_index = !(code[1] >> 6 & 1) * 8;
    high_rm = !(code[1] >> 5 & 1) * 8;
    if (i->mod != 3) {
        int64_t base = 0;
        int with_base = 1, far = i->mod == 2;
        if (i->rm == 4) {
            const int sib = code[n++], index = (sib >> 3 & 7) + high_index;
            if (index != 4)
                i->stride = general(context, index) << (sib >> 6);
            with_base = (sib & 7) != 5 || i->mod != 0;
            far |= !with_base;
            base = with_base ? general(context, (sib & 7) + high_rm) : 0;
        } else if (i->rm == 5 && i->mod == 0) {
            base = (int64_t)(code + n + 4); /* relative to the next instruction */
            far = 1;
        } else {
            base = general(context, i->rm + high_rm);
        }
        if (i->mod == 1)
            displacement = (int8_t)code[n++];
        if (far) {
            memcpy(&displacement, code + n, 4);
            n += 4;
        }
        i->at = (char *)(base + displacement);
    }
    i->bytes = n;
    return 1;
}

static void load_config(const tile_config *from)
{
    memset(&unit, 0, sizeof unit);
    if (from->palette == 0)
        return;
    require(from->palette == 1, "LDTILECFG of a palette that is not 1");
    require(from->start_row == 0, "LDTILECFG with a start_row");
    for (size_t n = 0; n < sizeof from->reserved; n++)
        require(from->reserved[n] == 0, "LDTILECFG with reserved bytes that are not 0");
    for (int n = 0; n < 16; n++) {
        require(from->row_bytes[n] <= ROW_BYTES && from->rows[n] <= ROWS,
                "LDTILECFG of a tile above 16 rows x 64 bytes");
        require(!from->row_bytes[n] == !from->rows[n], "LDTILECFG of rows without bytes");
        require(n < TILES || from->rows[n] == 0, "LDTILECFG of more than 8 tiles");
    }
    unit.config = *from;
}

/* Rows of tile n, which has to be configured. */
static int rows_of(int n)
{
    require(unit.config.palette == 1, "a tile that nobody configured (#UD)");
    require(unit.config.rows[n] != 0, "a tile that the configuration leaves out (#UD)");
    return unit.config.rows[n];
}

static void load_tile(const instruction *i)
{
    const int rows = rows_of(i->reg);
    uint32_t fresh[ROWS][ROW_BYTES / 4] = {{0}};
    require(i->rm == 4, "TILELOADD without SIB (#UD)");
    for (int row = 0; row < rows; row++)
        memcpy(fresh[row], i->at + row * i->stride, unit.config.row_bytes[i->reg]);
    memcpy(unit.reg[i->reg], fresh, sizeof fresh);
}

static void store_tile(const instruction *i)
{
    const int rows = rows_of(i->reg);
    require(i->rm == 4, "TILESTORED without SIB (#UD)");
    for (int row = 0; row < rows; row++)
        memcpy(i->at + row * i->stride, unit.reg[i->reg][row], unit.config.row_bytes[i->reg]);
}

static float bf16(uint32_t pair, int odd)
{
    return model_flush(heed_f32_of_bits(odd ? pair & 0xffff0000u : pair << 16));
}

static void multiply(int c, int a, int b)
{
    const int rows = rows_of(c), n_cols = unit.config.row_bytes[c] / 4, n_pairs = rows_of(b);
    require(c != a && c != b && a != b, "TDPBF16PS of one tile twice (#UD)");
    require(rows_of(a) == rows && unit.config.row_bytes[a] == 4 * n_pairs &&
                unit.config.row_bytes[b] == 4 * n_cols,
            "TDPBF16PS of tiles that do not fit (#UD)");
    float even_b[ROWS][16], odd_b[ROWS][16];
    for (int k = 0; k < ROWS; k++)
        for (int n = 0; n < 16; n++) {
            even_b[k][n] = bf16(unit.reg[b][k][n], 0);
            odd_b[k][n] = bf16(unit.reg[b][k][n], 1);
        }
    for (int m = 0; m < ROWS; m++) {
        float even[16] = {0}, odd[16] = {0};
        for (int k = 0; k < n_pairs && m < rows; k++) {
            const float even_a = bf16(unit.reg[a][m][k], 0), odd_a = bf16(unit.reg[a][m][k], 1);
            for (int n = 0; n < 16; n++) {
                even[n] = model_fma(even_a, even_b[k][n], even[n]);
                odd[n] = model_fma(odd_a, odd_b[k][n], odd[n]);
            }
        }
        for (int n = 0; n < 16; n++) {
            const float old = model_flush(heed_f32_of_bits(unit.reg[c][m][n]));
            const int inside = m < rows && n < n_cols;
            unit.reg[c][m][n] =
                inside ? heed_bits_of_f32(model_add(old, model_add(even[n], odd[n]))) : 0;
        }
    }
}

/* Returns 0 if it is no tile instruction. */
static int execute(const instruction *i)
{
    const int memory = i->mod != 3;
    if (i->opcode != 0x5c && i->v != 0)
        return 0;
    if (i->opcode == 0x49 && memory && i->reg == 0 && i->prefix == 0) {
        load_config((const tile_config *)(const void *)i->at);
    } else if (i->opcode == 0x49 && memory && i->reg == 0 && i->prefix == 1) {
        memcpy(i->at, &unit.config, sizeof unit.config);
    } else if (i->opcode == 0x49 && !memory && i->prefix == 0 && i->reg == 0 && i->rm == 0) {
        memset(&unit, 0, sizeof unit);
    } else if (i->opcode == 0x49 && !memory && i->prefix == 3 && i->rm == 0) {
        (void)rows_of(i->reg);
        memset(unit.reg[i->reg], 0, sizeof unit.reg[i->reg]);
    } else if (i->opcode == 0x4b && memory && (i->prefix == 3 || i->prefix == 1)) {
        load_tile(i); /* TILELOADDT1 is a hint to caches */
    } else if (i->opcode == 0x4b && memory && i->prefix == 2) {
        store_tile(i);
    } else if (i->opcode == 0x5c && !memory && i->prefix == 2) {
        require(i->v < TILES, "a register above tmm7");
        multiply(i->reg, i->rm, i->v);
    } else {
        return 0;
    }
    return 1;
}

static void on_illegal(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    instruction i;
    (void)info;
    if (decode(c, &i) && execute(&i))
        c->uc_mcontext.gregs[REG_RIP] += i.bytes;
    else
        signal(number, SIG_DFL); /* the instruction faults again, and ends the process */
}

heed_status heed_amx_emulate(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    static const heed_amx_machine usual = {1};
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    heed_cpu with_tiles = *cpu;
    if (cpu->isa & HEED_ISA_AMX_TILE)
        return heed_refuse(why, "this CPU has the tile unit itself");
    with_tiles.isa |= HEED_ISA_AMX_TILE | HEED_ISA_AMX_BF16;
    if (heed_amx_isa(&with_tiles, why) != HEED_OK)
        return HEED_ERR_UNSUPPORTED;
    *machine = &usual;
    return sigaction(SIGILL, &action, NULL) == 0 ? HEED_OK : heed_refuse(why, "no signal handlers");
}
