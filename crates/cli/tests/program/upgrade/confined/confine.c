/* Runs a program that may make the system calls of calls.h only, as a container of Docker may that has no capabilities. As there, other
   calls fail with EPERM, and clone3 fails with ENOSYS, because what it asks for is in memory that a filter cannot read. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH 0xc000003e
#elif defined(__aarch64__)
#define ARCH 0xc00000b7
#else
#error "no filter for this architecture"
#endif

/* The flags of clone that make namespaces. */
#define NAMESPACES 0x7e020000
#define AF_VSOCK 40

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count)
#define ALLOW(call) SKIP_UNLESS(call, 1), RETURN(SECCOMP_RET_ALLOW),

static struct sock_filter filter[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
#include "calls.h"
    SKIP_UNLESS(__NR_clone3, 1),
    RETURN(SECCOMP_RET_ERRNO | ENOSYS),
    SKIP_UNLESS(__NR_socket, 4),
    LOAD(args[0]),
    SKIP_UNLESS(AF_VSOCK, 1),
    RETURN(SECCOMP_RET_ERRNO | EPERM),
    RETURN(SECCOMP_RET_ALLOW),
    SKIP_UNLESS(__NR_clone, 4),
    LOAD(args[0]),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 1, 0),
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_ERRNO | EPERM),
    RETURN(SECCOMP_RET_ERRNO | EPERM),
};

int main(int argc, char **argv) {
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (argc < 2) {
        fputs("usage: confine PROGRAM [ARGUMENT]...\n", stderr);
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
        perror("confine: seccomp");
        return 2;
    }
    execv(argv[1], argv + 1);
    perror("confine: execv");
    return 127;
}
