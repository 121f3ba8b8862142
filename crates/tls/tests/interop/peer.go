// The other end for golang.rs. client ADDRESS FOLDER VERSION: two connections, by turns of every size of record; says whether the second was
// resumed. server ADDRESS FOLDER VERSION: sends to connections what must come back, and says how many were resumed.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func comesBack(conn *tls.Conn) {
	for _, size := range []int{1, 5, 16384, 16385, 100000} {
		sent := bytes.Repeat([]byte{byte(size)}, size)
		go conn.Write(sent)
		got := make([]byte, size)
		_, err := io.ReadFull(conn, got)
		must(err)
		if !bytes.Equal(sent, got) {
			must(fmt.Errorf("%d bytes are others", size))
		}
	}
}

func main() {
	address, folder := os.Args[2], os.Args[3]
	authority, err := os.ReadFile(folder + "authority.pem")
	must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	version := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[os.Args[4]]
	config := &tls.Config{RootCAs: roots, ClientCAs: roots, ServerName: "localhost", MinVersion: version, MaxVersion: version,
		NextProtos: []string{"echo"}, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	if os.Args[1] == "client" {
		pair, err := tls.LoadX509KeyPair(folder+"client.pem", folder+"client.key")
		must(err)
		config.Certificates = []tls.Certificate{pair}
		for turn := 0; turn < 2; turn++ {
			conn, err := tls.Dial("tcp", address, config)
			must(err)
			comesBack(conn)
			must(conn.CloseWrite())
			// The end of the other's stream is told, not cut off.
			rest, err := io.ReadAll(conn)
			must(err)
			state := conn.ConnectionState()
			if turn == 1 {
				fmt.Printf("resumed %t alpn %s, %d more\n", state.DidResume, state.NegotiatedProtocol, len(rest))
			}
			conn.Close()
		}
		return
	}
	pair, err := tls.LoadX509KeyPair(folder+"server.pem", folder+"server.key")
	must(err)
	config.Certificates = []tls.Certificate{pair}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	listener, err := net.Listen("tcp", address)
	must(err)
	fmt.Println("at", listener.Addr())
	resumed := 0
	for turn := 1; ; turn++ {
		accepted, err := listener.Accept()
		must(err)
		conn := tls.Server(accepted, config)
		must(conn.Handshake())
		if conn.ConnectionState().DidResume {
			resumed++
		}
		comesBack(conn)
		fmt.Println("echoed", turn, "resumed", resumed)
		conn.CloseWrite()
		_, err = io.ReadAll(conn)
		must(err)
		conn.Close()
	}
}
