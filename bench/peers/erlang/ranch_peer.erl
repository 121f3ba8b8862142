%% ranch: a process for each connection, which is sent what arrives.
%% usage: erl -pa RANCH PEER -noinput -s ranch_peer main -extra ping|http|acks PORT
-module(ranch_peer).
-behaviour(ranch_protocol).
-export([main/0, start_link/3, init/3]).

-define(READ, 262144). %% how much is asked for in one read of a stream of messages
-define(HEAD, 4096).
-define(PAYLOAD, 1000000).
-define(ANSWER, <<"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n">>).

main() ->
    [Workload, Port] = init:get_plain_arguments(),
    {ok, _} = application:ensure_all_started(ranch),
    Buffer = case Workload of
        "acks" -> [{buffer, ?READ}];
        _ -> []
    end,
    {ok, _} = ranch:start_listener(?MODULE, ranch_tcp,
        #{num_acceptors => 10, max_connections => infinity,
          socket_opts => [{ip, {127, 0, 0, 1}}, {port, list_to_integer(Port)}, {nodelay, true}, {backlog, 4096} | Buffer]},
        ?MODULE, list_to_existing_atom(Workload)).

start_link(Ref, Transport, Workload) ->
    {ok, proc_lib:spawn_link(?MODULE, init, [Ref, Transport, Workload])}.

init(Ref, Transport, Workload) ->
    {ok, Socket} = ranch:handshake(Ref),
    wait(Workload, Transport, Socket, <<>>).

%% The next 100 packets come as messages, then the process asks for more: nobody fills its mailbox.
wait(Workload, Transport, Socket, Kept) ->
    ok = Transport:setopts(Socket, [{active, 100}]),
    loop(Workload, Transport, Socket, Kept).

loop(Workload, Transport, Socket, Kept) ->
    receive
        {tcp, Socket, Data} -> taken(take(Workload, joined(Kept, Data)), Workload, Transport, Socket);
        {tcp_passive, Socket} -> wait(Workload, Transport, Socket, Kept);
        {tcp_closed, Socket} -> ok;
        {tcp_error, Socket, _} -> Transport:close(Socket)
    end.

joined(<<>>, Data) -> Data;
joined(Kept, Data) -> <<Kept/binary, Data/binary>>.

taken({[], Rest}, Workload, Transport, Socket) ->
    loop(Workload, Transport, Socket, Rest);
taken({last, Answer}, _Workload, Transport, Socket) ->
    _ = Transport:send(Socket, Answer),
    Transport:close(Socket);
taken({Answer, Rest}, Workload, Transport, Socket) ->
    case Transport:send(Socket, Answer) of
        ok -> loop(Workload, Transport, Socket, Rest);
        {error, _} -> Transport:close(Socket)
    end;
taken(wrong, _Workload, Transport, Socket) ->
    Transport:close(Socket).

%% What is answered and what is kept.
take(ping, Data) -> pings(Data, []);
take(http, Data) -> request(Data, binary:longest_common_suffix([Data, <<"\r\n\r\n">>]));
take(acks, Data) -> messages(Data, none, -1).

pings(<<"Ping", Rest/binary>>, Pongs) -> pings(Rest, [<<"Pong">> | Pongs]);
pings(Rest, Pongs) when byte_size(Rest) < 4 -> {Pongs, binary:copy(Rest)};
pings(_, _) -> wrong.

request(<<"GET /test/fast", After, _/binary>>, 4) when After =:= $\s; After =:= $\r -> {last, ?ANSWER};
request(Data, End) when End < 4, byte_size(Data) < ?HEAD -> {[], Data};
request(_, _) -> wrong.

messages(<<_:8/binary, Size:32/little, _/binary>>, _, _) when Size > ?PAYLOAD -> wrong;
messages(<<Id:8/binary, Size:32/little, _:Size/binary, Rest/binary>>, _, Skipped) -> messages(Rest, Id, Skipped + 1);
messages(Rest, none, _) -> {[], Rest};
messages(Rest, Id, Skipped) -> {<<Id/binary, Skipped:32/little>>, binary:copy(Rest)}.
