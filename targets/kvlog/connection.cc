#include "connection.h"

#include <cerrno>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>

namespace kvlog
{

static std::system_error system_error(const std::string &what, int error = errno)
{
    return std::system_error(error, std::generic_category(), what);
}

Descriptor::~Descriptor()
{
    if (fd_ >= 0)
        close(fd_);
}

Descriptor listen_on(std::uint16_t port)
{
    Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int on = 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (listener.get() < 0 ||
        setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(listener.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) < 0 ||
        listen(listener.get(), 128) < 0)
        throw system_error("cannot listen on port " + std::to_string(port));
    return listener;
}

Descriptor connect_to(const std::string &host, std::uint16_t port)
{
    std::string what = "cannot connect to " + host + ":" + std::to_string(port);
    addrinfo hints = {}, *found;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0)
        throw std::runtime_error(what + ": " + gai_strerror(error));
    Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    bool failed =
        connection.get() < 0 || connect(connection.get(), found->ai_addr, found->ai_addrlen) < 0;
    error = errno;
    freeaddrinfo(found);
    if (failed)
        throw system_error(what, error);
    return connection;
}

static Address address_by(int (*get)(int, sockaddr *, socklen_t *), int fd)
{
    sockaddr_in address = {};
    socklen_t bytes = sizeof address;
    get(fd, reinterpret_cast<sockaddr *>(&address), &bytes);
    return {address.sin_addr.s_addr, address.sin_port};
}

Connection::Connection(Descriptor socket)
    : socket_(std::move(socket)), local_(address_by(getsockname, socket_.get())),
      peer_(address_by(getpeername, socket_.get()))
{
    int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool Connection::send(const Header &header, const std::string &body)
{
    iovec parts[] = {{const_cast<Header *>(&header), sizeof header},
                     {const_cast<char *>(body.data()), body.size()}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    while (message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        for (auto left = static_cast<std::size_t>(sent < 0 ? 0 : sent); message.msg_iovlen > 0;) {
            iovec &part = *message.msg_iov;
            std::size_t step = left < part.iov_len ? left : part.iov_len;
            part.iov_base = static_cast<char *>(part.iov_base) + step;
            part.iov_len -= step;
            left -= step;
            if (part.iov_len > 0)
                break;
            message.msg_iov++;
            message.msg_iovlen--;
        }
    }
    return true;
}

bool Connection::receive(char *bytes, std::size_t count)
{
    while (count > 0) {
        ssize_t got = recv(socket_.get(), bytes, count, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        if (got > 0) {
            bytes += got;
            count -= static_cast<std::size_t>(got);
        }
    }
    return true;
}

bool Connection::receive_header(Header &header)
{
    return receive(reinterpret_cast<char *>(&header), sizeof header);
}

bool Connection::receive_body(std::string &body, std::size_t bytes)
{
    body.resize(bytes);
    return receive(body.data(), bytes);
}

void Connection::shut_down()
{
    shutdown(socket_.get(), SHUT_RDWR);
}

} // namespace kvlog
