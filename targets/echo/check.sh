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
echo "echo: all transports answer"
