# Ruby's Puma with a pool of threads: puma.rb PORT LOG BACKEND, until SIGTERM. See steps.py.

require "net/http"
require "puma"
require "puma/configuration"
require "puma/launcher"

PORT, LOG, BACKEND = ARGV
LOCK = Mutex.new
NOTES = Queue.new
HANDED = Queue.new
# Objects for a collection to scan, which takes some milliseconds.
KEPT = Array.new(50_000) { |number| [number] }
# Collections run only when a request asks for one.
GC.disable

def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

def note(number, what, amount, begin_ns)
  end_ns = now_ns
  NOTES << "#{number},#{what},#{amount},#{begin_ns},#{end_ns}\n"
  end_ns
end

def burn(amount)
  end_ns = now_ns + amount * 1_000_000
  nil while now_ns < end_ns
end

# Does the requests' jobs one after the other.
Thread.new do
  loop do
    number, amount, begin_ns, done = HANDED.pop
    begin_ns = note(number, "handwait", 0, begin_ns)
    burn(amount)
    note(number, "hand", amount, begin_ns)
    done << nil
  end
end

def call(number, amount)
  http = Thread.current[:back] ||= Net::HTTP.start("127.0.0.1", BACKEND.to_i)
  http.get("/b/#{number}/#{amount}").body
end

def carry_out(number, step, amount)
  begin_ns = now_ns
  case step
  when "burn" then burn(amount)
  when "collect" then amount.times { GC.enable; GC.start; GC.disable }
  when "sleep" then sleep(amount / 1000.0)
  when "call" then call(number, amount)
  when "hand"
    done = Queue.new
    HANDED << [number, amount, begin_ns, done]
    done.pop
    return
  when "lock"
    LOCK.synchronize do
      begin_ns = note(number, "lockwait", 0, begin_ns)
      sleep(amount / 1000.0)
      note(number, step, amount, begin_ns)
    end
    return
  end
  note(number, step, amount, begin_ns)
end

ANSWERS = lambda do |request|
  _, _, number, steps = request["PATH_INFO"].split("/")
  steps.split(",").each do |step|
    what, amount = step.split("=")
    carry_out(number, what, amount.to_i)
  end
  [200, { "Content-Length" => "2" }, ["ok"]]
end

configuration = Puma::Configuration.new do |config|
  config.app ANSWERS
  config.bind "tcp://127.0.0.1:#{PORT}"
  config.threads 5, 5
  config.quiet
end
at_exit { File.write(LOG, Array.new(NOTES.size) { NOTES.pop }.join) }
begin
  Puma::Launcher.new(configuration).run
rescue SignalException
  # Puma raises the signal again once it has stopped.
end
