#include "service.h"

#include <iostream>

namespace kvlog
{

Status Service::carry_out(Method method, const std::string &request, std::string &response)
{
    std::string key, value;
    if (method == Method::ping)
        return Status::ok;
    if (!split(request, key, value))
        return Status::malformed;
    if (method == Method::write)
        return store_.write(key, value) ? Status::ok : Status::full;
    if (method == Method::read)
        return store_.read(key, response) ? Status::ok : Status::not_found;
    return Status::malformed;
}

void Service::serve(Connection &connection)
{
    const Clock true_clock;
    Header header;
    std::string request, response;
    while (connection.receive_header(header)) {
        std::uint64_t arrival_ns = true_clock.now_ns();
        if (!is_sound(header)) {
            std::cerr << "kvserver: " + to_string(connection.peer()) +
                             " does not speak this protocol\n";
            return;
        }
        if (!connection.receive_body(request, header.request_bytes))
            return;
        std::uint64_t start_ns = true_clock.now_ns();
        header.server_receive_ns = clock_.now_ns();
        response.clear();
        header.status = carry_out(header.method, request, response);
        header.response_bytes = static_cast<std::uint32_t>(response.size());
        header.server_send_ns = clock_.now_ns();
        bool sent = connection.send(header, response);
        std::uint64_t end_ns = true_clock.now_ns();
        log_.write(std::string(name_of(header.method)) + ',' + std::to_string(arrival_ns) + ',' +
                       std::to_string(start_ns) + ',' + std::to_string(end_ns) + ',' +
                       (sent ? name_of(header.status) : "unsent"),
                   header);
        if (!sent)
            return;
    }
}

} // namespace kvlog
