/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel types the programs read, with only the fields they read.
 *
 * Every struct carries preserve_access_index, so libbpf relocates each access to the running
 * kernel's own layout (CO-RE). A short list instead of a generated vmlinux.h keeps the build
 * independent of the build machine's kernel and shows at a glance what is relied upon.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;

#define true 1
#define false 0

#include "arch.h"

enum bpf_map_type {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_QUEUE = 22,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
    BPF_F_NO_PREALLOC = 1,
    BPF_F_MMAPABLE = 1 << 10,
    BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
    BPF_F_USER_STACK = 256,
};

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

#define FMODE_READ 1 /* include/linux/fs.h */
#define FMODE_WRITE 2

#define S_IFMT 0170000 /* include/uapi/linux/stat.h */

#define AT_NULL 0 /* include/uapi/linux/auxvec.h */
#define AT_BASE 7
#define AT_ENTRY 9

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* A single pointer: any pointer can be read as this type. */
struct hlist_head {
    struct hlist_node *first;
};

struct super_block {
    u32 s_dev;
};

struct pipe_buffer {
    unsigned int len;
};

struct pipe_inode_info {
    unsigned int head;
    unsigned int tail;
    unsigned int ring_size;
    struct pipe_buffer *bufs;
};

struct inode {
    u16 i_mode;
    struct super_block *i_sb;
    unsigned long i_ino;
    struct pipe_inode_info *i_pipe;
};

struct qstr {
    const unsigned char *name;
};

struct dentry {
    struct qstr d_name;
};

struct path {
    struct dentry *dentry;
};

struct file {
    unsigned int f_mode;
    struct inode *f_inode;
    struct path f_path;
    void *private_data;
};

struct eventfd_ctx {
    unsigned long long count;
    int id;
};

struct in6_addr {
    u32 words[4];
};

struct ns_common {
    unsigned int inum;
};

struct net {
    struct ns_common ns;
};

typedef struct {
    struct net *net;
} possible_net_t;

typedef struct {
    s64 counter;
} atomic64_t;

struct sock_common {
    atomic64_t skc_cookie;
    unsigned long skc_flags;
    u32 skc_daddr;
    u32 skc_rcv_saddr;
    u16 skc_dport;
    u16 skc_num;
    unsigned short skc_family;
    volatile unsigned char skc_state;
    possible_net_t skc_net;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
};

struct sk_buff;
struct socket;

struct sk_buff_head {
    struct sk_buff *next;
    struct sk_buff *prev;
    u32 qlen;
};

struct sock {
    struct sock_common __sk_common;
    struct sk_buff_head sk_receive_queue;
    struct socket *sk_socket;
    u16 sk_type;
    u16 sk_protocol;
};

struct net_device {
    unsigned int flags;
    int ifindex;
    possible_net_t nd_net;
};

struct sk_buff {
    struct sk_buff *next;
    struct sk_buff *prev;
    struct net_device *dev;
    struct sock *sk;
    unsigned char *data;
    unsigned int len;
    unsigned char *head;
    u16 network_header;
    char cb[48];
};

/* Data of Unix sockets in sk_buff.cb. */
struct unix_skb_parms {
    u32 consumed;
};

struct udp_sock {
    struct sk_buff_head reader_queue;
};

struct socket {
    struct sock *sk;
};

struct msghdr {
    unsigned int msg_flags;
};

struct socket_alloc {
    struct inode vfs_inode;
};

struct sockaddr_un {
    char sun_path[108];
};

struct unix_address {
    int len;
    struct sockaddr_un name[];
};

struct unix_sock {
    struct unix_address *addr;
    struct sock *peer;
    int inq_len; /* Linux 6.17 */
};

struct inet_sock {
    u16 inet_sport;
};

struct tcp_sock {
    u32 rcv_nxt;
    u32 copied_seq;
    u32 write_seq;
    u32 snd_nxt;
    u32 snd_una;
    u32 snd_wnd;
    u32 snd_cwnd;
    u32 mss_cache;
    u32 snd_sml; /* end of the last small packet sent */
    /* Microseconds of CLOCK_MONOTONIC: when the last acknowledged packet was sent. */
    u64 first_tx_mstamp;
    u32 packets_out;
    u32 sacked_out;
    u32 lost_out;
    u32 retrans_out;
    u8 nonagle : 4;
};

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};

struct files_struct {
    struct fdtable *fdt;
};

struct vm_area_struct {
    unsigned long vm_start;
    unsigned long vm_flags;
    unsigned long vm_pgoff;
    struct file *vm_file;
};

struct mm_struct {
    unsigned long saved_auxv[52];
};

struct rq {
    u64 clock;
    u64 prev_steal_time_rq; /* CONFIG_PARAVIRT_TIME_ACCOUNTING */
};

struct cfs_rq {
    struct rq *rq; /* CONFIG_FAIR_GROUP_SCHED */
};

struct sched_entity {
    struct cfs_rq *cfs_rq;
};

struct sched_info {
    unsigned long long run_delay;
    unsigned long long last_arrival; /* CONFIG_SCHED_INFO; of the run queue's clock */
    unsigned long long last_queued;
};

struct thread_info {
    u32 cpu; /* from Linux 5.16 on x86 */
};

struct task_struct {
    struct thread_info thread_info;
    unsigned int cpu; /* before Linux 5.16 on x86 */
    int on_rq;
    struct sched_entity se;
    struct sched_info sched_info;
    void *stack;
    unsigned long nvcsw; /* how often it went to sleep */
    u64 start_time;
    unsigned int flags;
    unsigned int __state;
    int on_cpu;
    unsigned int in_iowait : 1;
    int exit_code;
    int pid;
    int tgid;
    char comm[16];
    struct files_struct *files;
    struct mm_struct *mm;
};

struct linux_binprm {
    const char *filename;
};

struct bpf_perf_event_data {
    struct pt_regs regs;
};

struct seq_file {
    unsigned long count;
};

struct bpf_iter_meta {
    struct seq_file *seq;
};

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

struct bpf_iter__task_file {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
    u32 fd;
    struct file *file;
};

struct bpf_iter__unix {
    struct bpf_iter_meta *meta;
    struct unix_sock *unix_sk;
};

struct gendisk {
    int major;
    int first_minor;
};

struct request_queue {
    struct gendisk *disk;
};

struct request {
    struct request_queue *q;
    unsigned int cmd_flags;
    unsigned int __data_len;
    unsigned long long __sector;
    unsigned long long start_time_ns;
};

struct block_device {
    u32 bd_dev;
};

struct journal_s {
    struct block_device *j_fs_dev;
};

struct transaction_s {
    unsigned int t_tid;
};

#pragma clang attribute pop
