// gnet: an event loop for each CPU, with a buffer of its own.
package main

import (
	"errors"
	"log"

	"github.com/panjf2000/gnet/v2"
	"sockdrawer/bench/peers/protocol"
)

// errDone ends a connection that has its answer.
var errDone = errors.New("done")

type server struct {
	gnet.BuiltinEventEngine
	serve func(gnet.Conn) error
}

func (s *server) OnTraffic(c gnet.Conn) gnet.Action {
	if s.serve(c) != nil {
		return gnet.Close
	}
	return gnet.None
}

func main() {
	workload, address := protocol.Arguments()
	serve := map[string]func(gnet.Conn) error{"ping": ping, "http": http, "acks": acks}[workload]
	options := []gnet.Option{gnet.WithMulticore(true), gnet.WithReusePort(true)}
	if workload == "acks" {
		options = append(options, gnet.WithReadBufferCap(protocol.Read))
	}
	log.Fatal(gnet.Run(&server{serve: serve}, "tcp://"+address, options...))
}

func ping(c gnet.Conn) error {
	for c.InboundBuffered() >= 4 {
		input, err := c.Peek(-1)
		if err != nil {
			return err
		}
		answer, err := protocol.Pongs(input)
		if err != nil {
			return err
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
		if _, err := c.Discard(len(answer)); err != nil {
			return err
		}
	}
	return nil
}

func http(c gnet.Conn) error {
	input, err := c.Peek(-1)
	if err != nil {
		return err
	}
	answer, err := protocol.Answer(input)
	if answer == nil || err != nil {
		return err
	}
	if _, err := c.Write(answer); err != nil {
		return err
	}
	return errDone
}

func acks(c gnet.Conn) error {
	input, err := c.Peek(-1)
	if err != nil {
		return err
	}
	var ack [12]byte
	used, whole, err := protocol.Acknowledge(input, &ack)
	if err != nil {
		return err
	}
	if !whole { // Discard(0) would discard all
		return nil
	}
	if _, err := c.Discard(used); err != nil {
		return err
	}
	_, err = c.Write(ack[:])
	return err
}
