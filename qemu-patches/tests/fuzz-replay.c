/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A main program for a fuzzer, in the place of libFuzzer, which only clang has:
 * it tries stored inputs, then changes of them, without looking at the code that they
 * reach.
 *
 *   fuzz-replay [--fuzz-target=NAME] SECONDS CRASH FOLDER…
 *
 * tries each file of the folders once, the small ones first, then changed ones
 * for so many seconds. The changes are the same ones with each run. An input
 * that ends the program is in the file CRASH.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define INPUTS_MAX      1024
#define INPUT_BYTES_MAX 65536
#define CHANGES_MAX     4

typedef struct Input {
    uint8_t *data;
    size_t size;
} Input;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv, char ***envp);
#pragma weak LLVMFuzzerInitialize

static Input inputs[INPUTS_MAX], current;
static size_t inputs_count;
static const char *crash_file;
static uint64_t random_state = 1;

/* The generator is George Marsaglia's xorshift64. */
static size_t draw(size_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static void keep_input(int number)
{
    int file = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (file >= 0 && write(file, current.data, current.size) < 0) {
        static const char text[] = "the input could not be written\n";

        if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
            _exit(2);
        }
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void try_input(const uint8_t *data, size_t size)
{
    /* As large as the input, so that a sanitizer sees its end. */
    current.data = malloc(size ? size : 1);
    memcpy(current.data, data, size);
    current.size = size;
    LLVMFuzzerTestOneInput(current.data, size);
    free(current.data);
}

static void read_input(const char *folder, const char *name)
{
    Input *input = &inputs[inputs_count];
    char path[4096];
    struct stat info;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (stat(path, &info) < 0 || !S_ISREG(info.st_mode)) {
        return;
    }
    file = fopen(path, "rb");
    if (!file || inputs_count == INPUTS_MAX) {
        fprintf(stderr, "error: %s cannot be read, or is one too many\n", path);
        exit(2);
    }
    input->data = malloc(INPUT_BYTES_MAX);
    input->size = fread(input->data, 1, INPUT_BYTES_MAX, file);
    fclose(file);
    inputs_count++;
}

static void read_folder(const char *name)
{
    DIR *folder = opendir(name);
    struct dirent *entry;

    if (!folder) {
        fprintf(stderr, "error: there is no folder %s\n", name);
        exit(2);
    }
    while ((entry = readdir(folder))) {
        read_input(name, entry->d_name);
    }
    closedir(folder);
}

static int compare(const void *a, const void *b)
{
    const Input *one = a, *other = b;

    if (one->size != other->size) {
        return one->size < other->size ? -1 : 1;
    }
    /* Not in the order that the folder happens to have. */
    return memcmp(one->data, other->data, one->size);
}

/* An input with some bytes changed, cut out, or put in from another. */
static size_t change_input(uint8_t *data)
{
    const Input *one = &inputs[draw(inputs_count)];
    const Input *other = &inputs[draw(inputs_count)];
    size_t size = one->size, changes = 1 + draw(CHANGES_MAX), from, length;

    memcpy(data, one->data, size);
    while (changes-- > 0 && size > 0) {
        size_t at = draw(size);

        switch (draw(4)) {
        case 0:
            data[at] ^= 1 << draw(8);
            break;
        case 1:
            data[at] = draw(256);
            break;
        case 2:
            length = 1 + draw(size - at);
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        default:
            from = draw(other->size + 1);
            length = draw(other->size - from + 1);
            if (size + length <= INPUT_BYTES_MAX) {
                memmove(data + at + length, data + at, size - at);
                memcpy(data + at, other->data + from, length);
                size += length;
            }
        }
    }
    return size;
}

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static const int fatal[] = { SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE,
                                 SIGTERM };
    static uint8_t data[INPUT_BYTES_MAX];
    int first = argc > 1 && argv[1][0] == '-' ? 2 : 1;
    double start, seconds;
    size_t runs = 0;

    if (argc < first + 3) {
        fprintf(stderr, "usage: %s [--fuzz-target=NAME] SECONDS CRASH FOLDER…\n",
                argv[0]);
        return 2;
    }
    seconds = atof(argv[first]);
    crash_file = argv[first + 1];
    for (int i = first + 2; i < argc; i++) {
        read_folder(argv[i]);
    }
    if (inputs_count == 0) {
        fprintf(stderr, "error: there is no input in %s\n", argv[first + 2]);
        return 2;
    }
    qsort(inputs, inputs_count, sizeof(inputs[0]), compare);
    if (LLVMFuzzerInitialize) {
        char **environment = NULL;

        LLVMFuzzerInitialize(&argc, &argv, &environment);
    }
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        signal(fatal[i], keep_input);
    }
    start = now_seconds();
    for (; runs < inputs_count; runs++) {
        try_input(inputs[runs].data, inputs[runs].size);
    }
    printf("%zu inputs in %.1f s\n", runs, now_seconds() - start);
    fflush(stdout);
    for (start = now_seconds(); now_seconds() - start < seconds; runs++) {
        size_t size = change_input(data);

        try_input(data, size);
    }
    printf("Done %zu runs, %zu of them stored inputs\n", runs, inputs_count);
    fflush(stdout);
    return 0;
}
