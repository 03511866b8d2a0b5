// Package dialtest is a name server for tests of what is checked after resolution.
package dialtest

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
)

// Names answers every question for an IPv4 address with the next of its addresses, the last again and again: a name
// whose owner changes it between two looks.
type Names struct {
	answers []netip.Addr
	asked   atomic.Int32
}

// New makes a name server; it listens nowhere.
func New(answers ...string) *Names {
	n := &Names{}
	for _, a := range answers {
		n.answers = append(n.answers, netip.MustParseAddr(a))
	}
	return n
}

// Asked counts the questions for IPv4 addresses.
func (n *Names) Asked() int { return int(n.asked.Load()) }

// Resolver asks this name server and no other.
func (n *Names) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go n.serve(ours)
		return theirs, nil
	}}
}

// serve speaks DNS over a stream (RFC 1035 §4.2.2): two bytes of length, then the message. It ends with the stream.
func (n *Names) serve(c net.Conn) {
	defer c.Close()
	for {
		size := make([]byte, 2)
		if _, err := io.ReadFull(c, size); err != nil {
			return
		}
		question := make([]byte, int(size[0])<<8|int(size[1]))
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		a := n.answer(question)
		if _, err := c.Write(append([]byte{byte(len(a) >> 8), byte(len(a))}, a...)); err != nil {
			return
		}
	}
}

func (n *Names) answer(question []byte) []byte {
	const header = 12
	end := header
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5 // the root, the type and the class
	out := append([]byte{}, question[:end]...)
	out[2], out[3] = 0x81, 0x80                                         // a recursive answer without error
	out[6], out[7], out[8], out[9], out[10], out[11] = 0, 0, 0, 0, 0, 0 // no records
	const typeA = 1
	if question[end-3] != typeA {
		return out
	}
	i := min(int(n.asked.Add(1)), len(n.answers)) - 1
	out[7] = 1
	out = append(out, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
	ip := n.answers[i].As4()
	return append(out, ip[:]...)
}
