// crypto/tls: a goroutine for each connection, which blocks.
package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"os"
)

const block = 16 * 1024

func main() {
	if len(os.Args) != 5 {
		log.Fatalf("usage: %s echo|mirror|sink|source PORT CHAIN KEY", os.Args[0])
	}
	mode := os.Args[1]
	certificate, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := tls.Listen("tcp", fmt.Sprintf("127.0.0.1:%s", os.Args[2]), &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		log.Fatal(err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			// What ends with an error is closed like the others: this server tells nobody.
			_ = serve(conn, mode)
		}()
	}
}

func serve(conn net.Conn, mode string) error {
	size := block
	if mode == "echo" {
		size = 64
	}
	buffer := make([]byte, size)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		if mode == "echo" || mode == "mirror" {
			if _, err := conn.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if mode == "source" {
			copy(buffer, bytes.Repeat([]byte{0x5a}, block))
		}
		for mode == "source" {
			if _, err := conn.Write(buffer); err != nil {
				return err
			}
		}
	}
}
