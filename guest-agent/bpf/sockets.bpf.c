/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Tells which process has got a local port for a socket: at the end of bind(), listen() or the
 * kernel's own choice of a port, and before the first SYN of a connection leaves, which has a
 * port only then. The kernel's types are named as far as they are read; the loader finds their
 * places in the running kernel (CO-RE). Read by src/adapters/follow_sockets.rs.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define RING_BYTES (256 * 1024)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sock_common {
    unsigned short skc_num;
};
struct inode {
    unsigned long i_ino;
};
struct file {
    struct inode *f_inode;
};
struct socket {
    struct file *file;
};
struct sock {
    struct sock_common __sk_common;
    unsigned short sk_protocol;
    struct socket *sk_socket;
};
#pragma clang attribute pop

/* As `Opened` in Rust. */
struct opened {
    __u64 inode;
    __u32 pid;
    __u16 port;
    __u16 protocol;
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, RING_BYTES);
} opened_sockets SEC(".maps");

static __always_inline void tell(struct sock *sk)
{
    struct opened *opened = bpf_ringbuf_reserve(&opened_sockets, sizeof(*opened), 0);

    /* A full ring has no reader: scans find the socket. */
    if (!opened) {
        return;
    }
    /* A path that ends early gives 0, as for a socket of the kernel itself. */
    opened->inode = sk->sk_socket->file->f_inode->i_ino;
    opened->pid = bpf_get_current_pid_tgid() >> 32;
    opened->port = sk->__sk_common.skc_num;
    opened->protocol = sk->sk_protocol;
    bpf_ringbuf_submit(opened, 0);
}

SEC("fentry/tcp_connect")
int BPF_PROG(tcp_connect, struct sock *sk)
{
    tell(sk);
    return 0;
}

SEC("fexit/inet_csk_get_port")
int BPF_PROG(inet_csk_get_port, struct sock *sk, unsigned short wanted, int error)
{
    if (!error) {
        tell(sk);
    }
    return 0;
}

SEC("fexit/udp_lib_get_port")
int BPF_PROG(udp_lib_get_port, struct sock *sk, unsigned short wanted, unsigned int hash,
             int error)
{
    if (!error) {
        tell(sk);
    }
    return 0;
}

char _license[] SEC("license") = "GPL";
