/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A fuzzer of the classifier for clang -fsanitize=fuzzer,address,undefined. */
#include <stdlib.h>
#include <string.h>

#include "sluice/classify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t dscp = UINT8_MAX;
    uint32_t ioprio = 0;

    if (sluice_dscp_of_frame(data, size, &dscp)) {
        if (dscp > SLUICE_DSCP_MAX || sluice_tag_of_dscp(dscp) > SLUICE_TAG_MAX) {
            abort();
        }
    } else if (dscp != UINT8_MAX) {
        abort();
    }
    if (size >= sizeof(ioprio)) {
        memcpy(&ioprio, data, sizeof(ioprio));
    }
    if (sluice_tag_of_ioprio(ioprio) > SLUICE_TAG_MAX) {
        abort();
    }
    return 0;
}
