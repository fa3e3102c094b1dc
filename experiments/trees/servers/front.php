<?php
// The front end in PHP: /r/NUMBER/STEPS, steps separated by commas. s3: sleeps 3 ms; c: asks the server behind, on a
// connection of its own; p: asks it twice at once. The server's port comes from the server in front.

function ask(int $port, string $path)
{
    $connection = stream_socket_client("tcp://127.0.0.1:$port", $code, $why, 30);
    fwrite($connection, "GET $path HTTP/1.1\r\nHost: behind\r\n\r\n");
    return $connection;
}

[, , $number, $steps] = explode('/', $_SERVER['REQUEST_URI']);
$port = (int) $_SERVER['BEHIND'];
foreach (explode(',', $steps) as $index => $step) {
    if ($step[0] === 's') {
        usleep(1000 * (int) substr($step, 1));
        continue;
    }
    $asked = [];
    for ($at = 0; $at < ($step === 'p' ? 2 : 1); $at++) {
        $asked[] = ask($port, "/b/$number/$index.$at");
    }
    foreach ($asked as $connection) {
        while (trim(fgets($connection)) !== '') {
        }
        fread($connection, strlen('ok'));
        fclose($connection);
    }
}
echo 'ok';
