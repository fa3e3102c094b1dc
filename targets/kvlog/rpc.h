// What client and server say to each other: a header, then a body whose length it tells.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvlog
{

enum class Method : std::uint32_t { ping = 1, write = 2, read = 3 };
enum class Status : std::uint32_t { ok, not_found, full, malformed };

const char *name_of(Method method);
const char *name_of(Status status);

struct Address {
    std::uint32_t ip = 0; // both as the kernel has them, in network order
    std::uint16_t port = 0;
};

std::string to_string(const Address &address);

// The same in request and response.  Integers are little-endian; the stamps are nanoseconds of the
// clocks of those who took them, which need not agree.
struct Header {
    std::uint32_t magic = expected_magic;
    Method method = Method::ping;
    std::uint64_t id = 0;
    std::uint64_t parent = 0; // what this is part of
    std::uint32_t client_ip = 0;
    std::uint32_t server_ip = 0;
    std::uint16_t client_port = 0;
    std::uint16_t server_port = 0;
    Status status = Status::ok;
    std::uint32_t request_bytes = 0; // of the bodies
    std::uint32_t response_bytes = 0;
    std::uint64_t client_send_ns = 0;
    std::uint64_t server_receive_ns = 0; // all of the request is there
    std::uint64_t server_send_ns = 0;
    std::uint64_t client_receive_ns = 0; // all of the response is there
    std::uint8_t reserved[16] = {};

    static constexpr std::uint32_t expected_magic = 0x474f4c4b; // "KLOG"
};
static_assert(sizeof(Header) == 96 && std::endian::native == std::endian::little);

constexpr std::uint32_t most_body_bytes = 64 << 20;

bool is_sound(const Header &header);

// The body of a request: the key's length in four bytes, the key, and the rest is the value.  The
// body of a response is the value read, or empty.
std::string join(std::string_view key, std::string_view value);
bool split(const std::string &body, std::string &key, std::string &value);

// A clock that is shifted against CLOCK_MONOTONIC, as that of another machine would be.
class Clock
{
  public:
    explicit Clock(std::int64_t shift_ns = 0) : shift_ns_(shift_ns)
    {
    }
    std::uint64_t now_ns() const;

  private:
    std::int64_t shift_ns_;
};

} // namespace kvlog
