// What the server does on a connection.
#pragma once

#include "connection.h"
#include "log.h"
#include "store.h"

namespace kvlog
{

class Service
{
  public:
    Service(Store &store, Log &log, Clock clock) : store_(store), log_(log), clock_(clock)
    {
    }

    // Answers requests, one after another, until the connection ends.
    void serve(Connection &connection);

  private:
    Status carry_out(Method method, const std::string &request, std::string &response);

    Store &store_;
    Log &log_;
    Clock clock_;
};

} // namespace kvlog
