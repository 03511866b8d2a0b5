package dial

import "net/netip"

// special are the ranges of the IANA special-purpose registries that no public service has, and multicast.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// global is the one range that IPv6 unicast addresses are given out of; what is not in it is loopback, unspecified,
// unique local, link-local, multicast or reserved.
var global = netip.MustParsePrefix("2000::/3")

// nat64 carries an IPv4 address in its last 32 bits (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Public reports whether the address is an ordinary one of the public internet: not loopback, private, link-local,
// shared (CGNAT), multicast, unspecified or reserved, in IPv4, in IPv6, or in IPv4 wrapped into IPv6.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	switch {
	case !ip.IsValid():
		return false
	case nat64.Contains(ip):
		b := ip.As16()
		return Public(netip.AddrFrom4([4]byte(b[12:])))
	case ip.Is6() && !global.Contains(ip):
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}
