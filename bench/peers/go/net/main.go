// The net package: a goroutine for each connection, which blocks.
package main

import (
	"log"
	"net"

	"sockdrawer/bench/peers/protocol"
)

func main() {
	workload, address := protocol.Arguments()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	serve := map[string]func(net.Conn) error{"ping": ping, "http": http, "acks": acks}[workload]
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			// What ends with an error is closed like the others: this server tells nobody.
			_ = serve(conn)
		}()
	}
}

func ping(conn net.Conn) error {
	buffer, kept := make([]byte, 64), 0
	for {
		n, err := conn.Read(buffer[kept:])
		if err != nil {
			return err
		}
		end := kept + n
		answer, err := protocol.Pongs(buffer[:end])
		if err != nil {
			return err
		}
		if len(answer) > 0 {
			if _, err := conn.Write(answer); err != nil {
				return err
			}
		}
		kept = copy(buffer, buffer[len(answer):end])
	}
}

func http(conn net.Conn) error {
	buffer, kept := make([]byte, protocol.Head), 0
	for {
		n, err := conn.Read(buffer[kept:])
		if err != nil {
			return err
		}
		kept += n
		answer, err := protocol.Answer(buffer[:kept])
		if err != nil {
			return err
		}
		if answer != nil {
			_, err := conn.Write(answer)
			return err
		}
	}
}

func acks(conn net.Conn) error {
	buffer, kept := make([]byte, protocol.Read), 0
	var ack [12]byte
	for {
		n, err := conn.Read(buffer[kept:])
		if err != nil {
			return err
		}
		end := kept + n
		used, whole, err := protocol.Acknowledge(buffer[:end], &ack)
		if err != nil {
			return err
		}
		if whole {
			if _, err := conn.Write(ack[:]); err != nil {
				return err
			}
		}
		kept = copy(buffer, buffer[used:end])
		if kept == len(buffer) { // a message that is longer than the buffer
			buffer = append(buffer, make([]byte, len(buffer))...)
		}
	}
}
