/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Says whether QEMU would take a gate page: 0 for yes. */
#include <stdio.h>

#include "sluice/gate-page.h"

int main(int argc, char **argv)
{
    static _Alignas(64) char page[sizeof(SluiceGatePage) + 1];
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    size_t bytes = file ? fread(page, 1, sizeof(page), file) : 0;

    return bytes > sizeof(SluiceGatePage) ? 100 : (int)sluice_gate_page_check(page, bytes);
}
