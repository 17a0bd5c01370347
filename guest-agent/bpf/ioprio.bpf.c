/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Refuses to change the I/O priority of a thread that carries a tag, unless who asks may set
 * priorities (CAP_SYS_NICE in the first user namespace, as the agent has): a tag is a real-time
 * priority, which nobody else can take, but anybody could lay down. Asked by ioprio_set() for
 * each thread. The kernel's types are named as far as they are read; the loader finds their
 * places in the running kernel (CO-RE). Loaded by src/adapters/guard.rs, which makes of it a
 * program that decides on the function's return ("fmod_ret").
 */
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/errno.h>
#include <linux/ioprio.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* As in src/domain/tag.rs. */
#define FIRST_TAG 1
#define LAST_TAG 15

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct io_context {
    unsigned short ioprio;
};
/* The kernel's own has a number of 64 bits in it, or two of 32: the place alone is asked for. */
struct capabilities {
    int unused;
};
struct user_namespace {
    int level;
};
struct cred {
    struct capabilities cap_effective;
    struct user_namespace *user_ns;
};
struct task_struct {
    const struct cred *cred;
    struct io_context *io_context;
};
#pragma clang attribute pop

static __always_inline int has_tag(struct task_struct *task)
{
    /* A task without a context, which has never had a priority, gives 0. */
    unsigned short ioprio = task->io_context->ioprio;
    unsigned short data = ioprio & ((1 << IOPRIO_CLASS_SHIFT) - 1);

    return ioprio >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT && data >= FIRST_TAG &&
           data <= LAST_TAG;
}

static __always_inline int may_set(const struct cred *cred)
{
    __u64 effective = 0;

    /* In a user namespace of his own everybody has every capability. */
    if (cred->user_ns->level) {
        return 0;
    }
    bpf_probe_read_kernel(&effective, sizeof(effective), &cred->cap_effective);
    return effective >> CAP_SYS_NICE & 1;
}

SEC("fentry/security_task_setioprio")
int BPF_PROG(keep_tag, struct task_struct *task, int wanted, int refused)
{
    struct task_struct *caller = bpf_get_current_task_btf();

    if (refused) {
        return refused;
    }
    return has_tag(task) && !may_set(caller->cred) ? -EPERM : 0;
}

char _license[] SEC("license") = "GPL";
