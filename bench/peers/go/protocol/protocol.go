// Package protocol has what the peers in Go share: the three protocols as pure functions, and the arguments.
package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
)

const (
	// Read is how much is asked for in one read of a stream of messages.
	Read = 256 * 1024
	// Head is the most bytes of a request.
	Head       = 4096
	maxPayload = 1_000_000
)

var (
	// ErrWrong is a peer that does not keep to the protocol: its connection is closed.
	ErrWrong = errors.New("wrong input")
	answer   = []byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	fast     = []byte("GET /test/fast")
	pongs    = bytes.Repeat([]byte("Pong"), 1024)
)

// Arguments are those of every peer: WORKLOAD PORT.
func Arguments() (workload, address string) {
	if len(os.Args) == 3 {
		if _, err := strconv.ParseUint(os.Args[2], 10, 16); err == nil {
			switch os.Args[1] {
			case "ping", "http", "acks":
				return os.Args[1], "127.0.0.1:" + os.Args[2]
			}
		}
	}
	fmt.Fprintf(os.Stderr, "usage: %s ping|http|acks PORT\n", os.Args[0])
	os.Exit(2)
	return
}

// Pongs is the answer to whole pings, as many as can be answered at once; each takes four bytes of the input.
func Pongs(input []byte) ([]byte, error) {
	whole := min(len(input)/4*4, len(pongs))
	for at := 0; at < whole; at += 4 {
		if string(input[at:at+4]) != "Ping" {
			return nil, ErrWrong
		}
	}
	return pongs[:whole], nil
}

// Answer is the answer to a request, nil while some of it has not come.
func Answer(input []byte) ([]byte, error) {
	if !bytes.HasSuffix(input, []byte("\r\n\r\n")) {
		if len(input) >= Head {
			return nil, ErrWrong
		}
		return nil, nil
	}
	if rest, found := bytes.CutPrefix(input, fast); found && (rest[0] == ' ' || rest[0] == '\r') {
		return answer, nil
	}
	return nil, ErrWrong
}

// Acknowledge says how many bytes the whole messages take, and writes the acknowledgement of all of them; whole is false
// if there is none.
func Acknowledge(input []byte, ack *[12]byte) (used int, whole bool, err error) {
	last, count := 0, uint32(0)
	for len(input)-used >= 12 {
		size := binary.LittleEndian.Uint32(input[used+8:])
		if size > maxPayload {
			return 0, false, ErrWrong
		}
		begin, length := used, 12+int(size)
		// As long as sizes are the same, where the next message begins does not wait for what this one says.
		for len(input)-used >= length && binary.LittleEndian.Uint32(input[used+8:]) == size {
			last = used
			used += length
			count++
		}
		if used == begin {
			break
		}
	}
	if count == 0 {
		return used, false, nil
	}
	copy(ack[:8], input[last:])
	binary.LittleEndian.PutUint32(ack[8:], count-1)
	return used, true, nil
}
