# All transports and servers, small and large messages.
for transport in tcp tcp6 unix pair; do
    for server in "" -e; do
        for bytes in 0 1 100 1000000; do
            answers=$(./echo -t $transport $server -c 2 -n 5 -b $bytes)
            case $transport in
            pair) wanted="5 answers" ;;
            *) wanted="10 answers" ;;
            esac
            [ "$answers" = "$wanted" ] || {
                echo "echo -t $transport $server -b $bytes: $answers" >&2
                exit 1
            }
        done
    done
done
for options in "-t tcp" "-t tcp -e" "-t unix" "-t unix -e"; do
    answers=$(./echo $options -p -c 2 -n 5)
    [ "$answers" = "10 answers" ] || {
        echo "echo $options -p: $answers" >&2
        exit 1
    }
done
for transport in udp udp6 unixgram seqpacket; do
    for options in "-b 1" "-b 65000" "-m 5" "-l 3"; do
        answers=$(./echo -t $transport -n 5 $options)
        [ "$answers" = "5 answers" ] || {
            echo "echo -t $transport $options: $answers" >&2
            exit 1
        }
    done
done
echo "echo: all transports answer"
