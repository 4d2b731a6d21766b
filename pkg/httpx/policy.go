package httpx

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// special returns the ranges of IANA's registries of special-purpose addresses, reachable or not, and multicast: no tenant's URL may lead
// there. In IPv6 only 2000::/3 is public at all, except for the ranges within it.
func special() []netip.Prefix {
	return prefixes(
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"::/3",      // loopback, unspecified, v4-mapped, v4-compatible, NAT64 (64:ff9b::/96, 64:ff9b:1::/48), discard
		"4000::/2",  // not assigned, and 5f00::/16
		"8000::/1",  // not assigned, fc00::/7, fe80::/10, fec0::/10, ff00::/8
		"2001::/23", // protocol assignments: Teredo, benchmarking, ORCHID, drone ids
		"2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	)
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// policy decides which addresses may be connected.
type policy struct {
	special []netip.Prefix
	allowed []allowance
}

// allowance is one entry of the operator's list: a network, or a host by name. An empty port means any.
type allowance struct {
	network netip.Prefix
	host    string
	port    string
}

// parseAllow parses the operator's list.
func parseAllow(list []string) (policy, error) {
	p := policy{special: special()}
	var problems []fault.Field
	for i, entry := range list {
		a, err := parseAllowance(entry)
		if err != nil {
			problems = append(problems, fault.Field{
				Name: fmt.Sprintf("allow[%d]", i), Problem: fmt.Sprintf("found %q; expected a network, an address or a host's name, with or without a port", entry),
			})
			continue
		}
		p.allowed = append(p.allowed, a)
	}
	if len(problems) > 0 {
		return p, fault.InvalidFields(problems...)
	}
	return p, nil
}

func parseAllowance(entry string) (allowance, error) {
	if network, err := netip.ParsePrefix(entry); err == nil {
		return allowance{network: network.Masked()}, nil
	}
	if addr, err := netip.ParseAddr(entry); err == nil && addr.Zone() == "" {
		return allowance{network: single(addr)}, nil
	}
	if at, err := netip.ParseAddrPort(entry); err == nil && at.Addr().Zone() == "" {
		return allowance{network: single(at.Addr()), port: strconv.Itoa(int(at.Port()))}, nil
	}
	host, port, found := strings.Cut(entry, ":")
	if found && !isPort(port) || !isName(strings.TrimPrefix(host, "*.")) {
		return allowance{}, fmt.Errorf("not an allowance: %q", entry)
	}
	return allowance{host: strings.ToLower(host), port: port}, nil
}

func single(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen())
}

func isPort(s string) bool {
	at, err := netip.ParseAddrPort("127.0.0.1:" + s)
	return err == nil && at.Port() > 0
}

// isName refuses texts that are neither an address nor a name, and names that are numbers, which some resolvers read as addresses.
func isName(s string) bool {
	if s == "" || len(s) > 253 || strings.Trim(s, "0123456789.") == "" {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// check decides about one connection: to the address that is about to be dialled, for the requested host and port.
func (p policy) check(host, port, network, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return fault.New(fault.Denied, "found %s address %q; expected one of TCP", network, address)
	}
	addr := at.Addr().WithZone("").Unmap()
	for _, a := range p.allowed {
		if a.matches(host, port, addr) {
			return nil
		}
	}
	for _, s := range p.special {
		if s.Contains(addr) {
			return fault.Because(refused{addr.String()}, fault.Denied, "%s is not at a public address; an operator may allow it", host)
		}
	}
	if port != "80" && port != "443" {
		return fault.New(fault.Denied, "%s is on port %s; expected 80 or 443, or one that an operator allows", host, port)
	}
	return nil
}

func (a allowance) matches(host, port string, addr netip.Addr) bool {
	if a.port != "" && a.port != port {
		return false
	}
	if a.host == "" {
		return a.network.Contains(addr)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if below, ok := strings.CutPrefix(a.host, "*"); ok {
		return strings.HasSuffix(host, below)
	}
	return host == a.host
}
