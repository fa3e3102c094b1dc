// A TCP connection that carries headers and bodies, and how to come by one.
#pragma once

#include "rpc.h"

#include <string>
#include <utility>

namespace kvlog
{

// Owns a descriptor.
class Descriptor
{
  public:
    explicit Descriptor(int fd = -1) : fd_(fd)
    {
    }
    Descriptor(Descriptor &&other) noexcept : fd_(std::exchange(other.fd_, -1))
    {
    }
    Descriptor &operator=(Descriptor &&other) noexcept
    {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor();
    int get() const
    {
        return fd_;
    }

  private:
    int fd_;
};

// Both throw std::system_error.
Descriptor listen_on(std::uint16_t port);
Descriptor connect_to(const std::string &host, std::uint16_t port);

class Connection
{
  public:
    explicit Connection(Descriptor socket);

    // False when the peer has closed the connection, or it has broken.
    bool send(const Header &header, const std::string &body);
    bool receive_header(Header &header);
    bool receive_body(std::string &body, std::size_t bytes);

    // Has every call that another thread is in, or makes later, return false.
    void shut_down();

    Address local() const
    {
        return local_;
    }
    Address peer() const
    {
        return peer_;
    }

  private:
    bool receive(char *bytes, std::size_t count);

    Descriptor socket_;
    Address local_, peer_;
};

} // namespace kvlog
