/* The load of a broker: subscribers of one topic, each of which must get every message, in order and byte for byte, and a publisher.
 * usage: client PROTOCOL PORT SUBSCRIBERS STALLED MESSAGES INTERVAL_US LIMIT_SECONDS
 * PROTOCOL is lines, nats or mqtt. An interval of 0 writes all messages in one go. It says READY when all have subscribed, waits for a
 * line, says in a line of JSON what came, and keeps its connections until its input ends. Messages have one size, so that all subscribers
 * expect one stream, each from its own place on: what was read is compared with that, and most of it in one memcmp. */
#include "../floor/common.h"
#include "../floor/histogram.h"

#define EVENTS 256
#define SAMPLED 128       /* subscribers whose times are recorded */
#define CHUNK 65536       /* that is read or written at once */
#define NUMBER 10         /* digits */
#define TEXT 31           /* a line to the publisher's server is 40 bytes */
#define LARGEST 64        /* message */
#define SMALL 8192        /* of the kernel's buffer, for who does not read, and for who is to notice that the server does not */
#define PATIENCE 30000000000ull /* without a delivery: long, because who is late has lost nothing */

/* Read by position; the last is what may come between messages and is not answered: nobody insists within a run. */
struct bytes {
    const char *data;
    size_t size;
};
#define BYTES(text) {text, sizeof text - 1}
static const struct protocol {
    const char *name;
    int greets; /* with a line, before it was asked */
    struct bytes hello, welcome, subscribe, subscribed, publish, deliver, end, aside;
} protocols[] = {
    {"lines", 0, BYTES("PING\n"), BYTES("PONG\n"), BYTES("SUB fan\n"), BYTES("OK\n"), BYTES("PUB fan "), BYTES("MSG fan "),
     BYTES("\n"), BYTES("")},
    {"nats", 1, BYTES("CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n"), BYTES("PONG\r\n"), BYTES("SUB fan 1\r\nPING\r\n"),
     BYTES("PONG\r\n"), BYTES("PUB fan 31\r\n"), BYTES("MSG fan 1 31\r\n"), BYTES("\r\n"), BYTES("PING\r\n")},
    {"mqtt", 0, BYTES("\x10\x0c\0\4MQTT\4\2\0\0\0\0"), BYTES("\x20\2\0\0"), BYTES("\x82\x08\0\1\0\3fan\0"), BYTES("\x90\3\0\1\0"),
     BYTES("\x30\x24\0\3fan"), BYTES("\x30\x24\0\3fan"), BYTES(""), BYTES("")},
};

struct subscriber {
    int fd, slow, sampled;
    uint64_t at;     /* in the stream, where what is read next belongs */
    unsigned carried; /* bytes of a message that is not the one expected, or of what comes aside; at is then where a message begins */
    char carry[LARGEST];
};

static const struct protocol *protocol;
static int port, count, stalled, poll_fd, publisher;
static uint64_t messages, interval, limit;
static struct subscriber subscribers[FILES];
static char *stream, *lines; /* that a subscriber expects, that the publisher writes */
static size_t size, line_size;
static uint64_t *sent_at, started, sent, late;
static int publisher_failed;
static uint64_t active, delivered, disorder, wrong, closed;

static void fail(const char *what)
{
    fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(2);
}

static char *repeated(struct bytes head, size_t *each)
{
    size_t tail = protocol->end.size;
    *each = head.size + TEXT + tail;
    char *all = malloc(*each * messages), *at = all;
    if (!all)
        fail("malloc");
    for (uint64_t i = 0; i < messages; i++, at += *each) {
        char text[TEXT + 1];
        snprintf(text, sizeof text, "%0*lu", NUMBER, (unsigned long)i);
        uint32_t random = (uint32_t)i;
        for (int k = NUMBER; k < TEXT; k++)
            text[k] = 'a' + (random = random * 1664525 + 1013904223) % 997 % 26;
        memcpy(at, head.data, head.size);
        memcpy(at + head.size, text, TEXT);
        memcpy(at + head.size + TEXT, protocol->end.data, tail);
    }
    return all;
}

static void ask(int fd, struct bytes question, struct bytes answer)
{
    char data[LARGEST];
    errno = 0;
    if (send(fd, question.data, question.size, MSG_NOSIGNAL) != (ssize_t)question.size)
        fail("the server does not take what is asked");
    if (recv(fd, data, answer.size, MSG_WAITALL) != (ssize_t)answer.size || memcmp(data, answer.data, answer.size))
        fail("another answer than expected, or none");
}

static int connected(int receives, int sends)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0)
        fail("socket");
    if (receives)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receives, sizeof receives);
    if (sends)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sends, sizeof sends);
    struct linger reset = {1, 0}; /* no TIME_WAIT for thousands */
    struct timeval most = {20, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in address = loopback(port);
    if (connect(fd, (void *)&address, sizeof address))
        fail("connect");
    for (char byte = 0; protocol->greets && byte != '\n';)
        if (recv(fd, &byte, 1, 0) != 1)
            fail("no greeting");
    ask(fd, protocol->hello, protocol->welcome);
    return fd;
}

static void subscribe(void)
{
    int every = (count - stalled) / SAMPLED + 1;
    for (int i = 0; i < count; i++) {
        /* Spread evenly among those that read. */
        struct subscriber *subscriber = &subscribers[i];
        int slow = subscriber->slow = (int64_t)i * stalled % count < stalled;
        subscriber->fd = connected(slow ? SMALL : 0, 0);
        ask(subscriber->fd, protocol->subscribe, protocol->subscribed);
        if (slow)
            continue;
        subscriber->sampled = active++ % every == 0;
        fcntl(subscriber->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u32 = i};
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, subscriber->fd, &event))
            fail("epoll_ctl");
    }
}

static uint64_t due(uint64_t message)
{
    return started + message * interval;
}

/* A thread of its own, whose writes block when the server does not read. When it is late it writes all that is due at once. */
static void *publish(void *unused)
{
    size_t at = 0, all = messages * line_size;
    while (at < all) {
        uint64_t first = at / line_size, time = now(), until = messages;
        if (time < due(first)) {
            struct timespec then = {due(first) / 1000000000, due(first) % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, 0);
            time = now();
        }
        if (interval && (time - started) / interval + 1 < messages)
            until = (time - started) / interval + 1;
        size_t part = until * line_size - at;
        if (part > CHUNK)
            part = CHUNK;
        for (uint64_t i = first; i < (at + part) / line_size; i++)
            __atomic_store_n(&sent_at[i], time, __ATOMIC_RELAXED);
        ssize_t wrote = send(publisher, lines + at, part, MSG_NOSIGNAL);
        if (wrote <= 0) {
            publisher_failed = 1;
            return unused;
        }
        at += wrote;
        time = now();
        if (time - due(first) > late)
            late = time - due(first);
        __atomic_store_n(&sent, at / line_size, __ATOMIC_RELEASE);
    }
    return unused;
}

static pthread_t start_publisher(void)
{
    pthread_t thread;
    started = now();
    if (pthread_create(&thread, 0, publish, 0))
        fail("pthread_create");
    /* It must not wait for the subscribers of this process, where that may be asked for; in one go it does nothing but write. */
    struct sched_param first = {1};
    if (interval)
        pthread_setschedparam(thread, SCHED_FIFO, &first);
    return thread;
}

static void leave(struct subscriber *subscriber, uint64_t *why, uint64_t much)
{
    if (subscriber->at < messages * size) {
        active--;
        *why += much;
    }
    close(subscriber->fd);
    subscriber->fd = -1;
}

/* To where the message after the last whole one begins, or into it. Of those in between only the last `whole` have come. */
static void move(struct subscriber *subscriber, uint64_t at, uint64_t whole)
{
    uint64_t all = messages * size, time = subscriber->sampled && whole ? now() : 0;
    delivered += whole;
    for (uint64_t i = at / size - whole; time && i < at / size; i++)
        record(time - __atomic_load_n(&sent_at[i], __ATOMIC_RELAXED));
    if (subscriber->at < all && at == all)
        active--;
    subscriber->at = at;
}

static int begins(const char *data, size_t left, struct bytes with)
{
    return with.size && !memcmp(data, with.data, left < with.size ? left : with.size);
}

/* The message of that number in the stream, if these bytes are one. */
static int64_t number(const char *data)
{
    uint64_t value = 0;
    for (const char *digit = data + protocol->deliver.size; digit < data + protocol->deliver.size + NUMBER; digit++)
        value = value * 10 + (uint64_t)(*digit - '0');
    return value < messages && !memcmp(data, stream + value * size, size) ? (int64_t)value : -1;
}

/* Message by message, what is not simply the next part of the stream. */
static void take_apart(struct subscriber *subscriber, const char *data, size_t length)
{
    static char joined[CHUNK + LARGEST];
    size_t before = subscriber->carried ? subscriber->carried : subscriber->at % size, left = before + length;
    memcpy(joined, subscriber->carried ? subscriber->carry : stream + subscriber->at - before, before);
    memcpy(joined + before, data, length);
    subscriber->at -= subscriber->at % size;
    subscriber->carried = 0;
    for (const char *at = joined; left;) {
        uint64_t expected = subscriber->at / size;
        int aside = begins(at, left, protocol->aside);
        size_t step = aside ? protocol->aside.size : size;
        if (left < step) {
            struct bytes rest = {stream + subscriber->at, expected < messages ? size : 0};
            if (!aside && begins(at, left, rest))
                subscriber->at += left;
            else
                memcpy(subscriber->carry, at, subscriber->carried = left);
            return;
        }
        int64_t came = aside ? 0 : number(at);
        if (came < 0) {
            leave(subscriber, &wrong, left);
            return;
        }
        if (!aside && (uint64_t)came < expected)
            disorder++;
        else if (!aside)
            move(subscriber, (came + 1) * size, 1);
        at += step;
        left -= step;
    }
}

/* Says whether there may be more; if not, something new is a new event. */
static int receive(struct subscriber *subscriber, uint32_t what)
{
    static char data[CHUNK];
    ssize_t length = recv(subscriber->fd, data, sizeof data, 0);
    if (length < 0 && errno == EAGAIN)
        return 0;
    if (length <= 0) {
        leave(subscriber, &closed, 1);
        return 0;
    }
    uint64_t from = subscriber->at, to = from + length;
    if (subscriber->carried || to > messages * size || memcmp(data, stream + from, length))
        take_apart(subscriber, data, length);
    else
        move(subscriber, to, to / size - from / size);
    return subscriber->fd >= 0 && (length == sizeof data || what & ~EPOLLIN);
}

/* Until every subscriber has the last message, nothing comes any more, or time is up. When the last delivery was. */
static uint64_t receive_all(void)
{
    static struct epoll_event events[EVENTS];
    uint64_t last = started, seen = 0, time = started;
    while (active && time - started < limit && time - last < PATIENCE) {
        int found = epoll_wait(poll_fd, events, EVENTS, 100);
        for (int i = 0; i < found; i++)
            while (receive(&subscribers[events[i].data.u32], events[i].events))
                ;
        time = now();
        if (delivered != seen)
            last = time;
        seen = delivered;
    }
    return last;
}

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* What was still coming when time was up is not lost. */
static void tell(uint64_t last, double cpu, int coming)
{
    uint64_t wrote = __atomic_load_n(&sent, __ATOMIC_ACQUIRE), wanted = wrote * (count - stalled), pending = 0;
    for (int i = 0; i < count; i++) {
        struct subscriber *subscriber = &subscribers[i];
        wrong += subscriber->carried;
        if (coming && !subscriber->slow && subscriber->fd >= 0 && subscriber->at / size < wrote)
            pending += wrote - subscriber->at / size;
    }
    uint64_t accounted = delivered + pending;
    printf("{\"sent\":%lu,\"unsent\":%lu,\"delivered\":%lu,\"pending\":%lu,\"lost\":%lu,", wrote, messages - wrote, delivered, pending,
           wanted > accounted ? wanted - accounted : 0);
    printf("\"disorder\":%lu,\"wrong\":%lu,\"closed\":%lu,", disorder, wrong, closed);
    printf("\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"late_ms\":%.3f,\"after_ms\":%.3f,\"seconds\":%.4f,", percentile(0.5) / 1e6,
           percentile(0.99) / 1e6, late / 1e6, ((double)last - due(interval ? messages : 0)) / 1e6, (last - started) / 1e9);
    printf("\"client_cpu_seconds\":%.4f,\"publisher_failed\":%d,\"silent\":%d}\n", cpu, publisher_failed,
           active && !coming);
    fflush(stdout);
}

int main(int words, char **arguments)
{
    for (size_t i = 0; words == 8 && i < sizeof protocols / sizeof *protocols; i++)
        if (!strcmp(arguments[1], protocols[i].name))
            protocol = &protocols[i];
    if (!protocol || (count = atoi(arguments[3])) < 1 || count > FILES - 100 || (stalled = atoi(arguments[4])) < 0 || stalled >= count) {
        fprintf(stderr, "usage: %s lines|nats|mqtt PORT SUBSCRIBERS STALLED MESSAGES INTERVAL_US LIMIT_SECONDS\n", arguments[0]);
        return 2;
    }
    port = atoi(arguments[2]);
    messages = strtoull(arguments[5], 0, 10);
    interval = strtoull(arguments[6], 0, 10) * 1000;
    limit = strtoull(arguments[7], 0, 10) * 1000000000;
    signal(SIGPIPE, SIG_IGN);
    allow_files();
    stream = repeated(protocol->deliver, &size);
    lines = repeated(protocol->publish, &line_size);
    sent_at = calloc(messages, sizeof *sent_at);
    poll_fd = epoll_create1(0);
    subscribe();
    publisher = connected(0, interval ? SMALL : 0);
    printf("READY\n");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        return 1;
    double before = cpu_seconds();
    pthread_t thread = start_publisher();
    uint64_t last = receive_all();
    double cpu = cpu_seconds() - before;
    int coming = now() - last < PATIENCE;
    /* What it wrote last it may not have counted yet; one that blocks is not waited for. */
    struct timespec then;
    clock_gettime(CLOCK_REALTIME, &then);
    then.tv_sec++;
    pthread_timedjoin_np(thread, 0, &then);
    tell(last, cpu, coming);
    while (fgets(line, sizeof line, stdin))
        ;
    _exit(0); /* with the publisher, should its write still block */
}
