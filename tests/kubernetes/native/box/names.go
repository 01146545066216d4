package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

type service struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		ClusterIP string `json:"clusterIP"`
	} `json:"spec"`
}

type endpoints struct {
	Metadata meta `json:"metadata"`
	Subsets  []struct {
		Addresses []struct {
			IP       string `json:"ip"`
			Hostname string `json:"hostname"`
		} `json:"addresses"`
	} `json:"subsets"`
}

const (
	typeA, typeAAAA         = 1, 28
	noError, nameError      = 0, 3
	answerBits, recursion   = 0x8400, 0x0100
	compressedName, classIN = 0xc00c, 1
)

// names answers A queries for SERVICE.NAMESPACE.svc.DOMAIN, and for headless services with the addresses of their pods.
func names(arguments []string) error {
	flags := flag.NewFlagSet("names", flag.ExitOnError)
	port := flags.Int("port", 53, "UDP port to listen on")
	domain := flags.String("domain", "cluster.local", "domain of the cluster")
	connect := clusterFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	c, err := connect()
	if err != nil {
		return err
	}
	zone := zone{suffix: ".svc." + *domain}
	zone.services = follow[service](c, "/api/v1/services", func() { zone.update() })
	zone.endpoints = follow[endpoints](c, "/api/v1/endpoints", func() { zone.update() })
	go http.ListenAndServe(":8181", http.HandlerFunc(zone.ready))
	socket, err := net.ListenUDP("udp", &net.UDPAddr{Port: *port})
	if err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		size, from, err := socket.ReadFromUDP(buffer)
		if err != nil {
			return err
		}
		if answer, err := zone.answer(buffer[:size]); err == nil {
			socket.WriteToUDP(answer, from)
		}
	}
}

type zone struct {
	mutex     sync.Mutex
	suffix    string
	services  *store[service]
	endpoints *store[endpoints]
	addresses map[string][]net.IP
}

// update computes all names again; a test cluster has few.
func (z *zone) update() {
	if z.services == nil || z.endpoints == nil {
		return
	}
	services, first := z.services.all()
	backends, second := z.endpoints.all()
	if !first || !second {
		return
	}
	found := map[string][]net.IP{}
	headless := map[string]bool{}
	for _, s := range services {
		name := s.Metadata.Name + "." + s.Metadata.Namespace
		if s.Spec.ClusterIP == "None" {
			headless[name] = true
			found[name] = nil
		} else if ip := net.ParseIP(s.Spec.ClusterIP).To4(); ip != nil {
			found[name] = []net.IP{ip}
		}
	}
	for _, e := range backends {
		name := e.Metadata.Name + "." + e.Metadata.Namespace
		if !headless[name] {
			continue
		}
		for _, subset := range e.Subsets {
			for _, address := range subset.Addresses {
				ip := net.ParseIP(address.IP).To4()
				found[name] = append(found[name], ip)
				if address.Hostname != "" {
					found[address.Hostname+"."+name] = []net.IP{ip}
				}
			}
		}
	}
	z.mutex.Lock()
	z.addresses = found
	z.mutex.Unlock()
}

func (z *zone) ready(w http.ResponseWriter, _ *http.Request) {
	z.mutex.Lock()
	defer z.mutex.Unlock()
	if z.addresses == nil {
		http.Error(w, "no services yet", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// answer returns the response to one query of one question.
func (z *zone) answer(query []byte) ([]byte, error) {
	if len(query) < 17 || binary.BigEndian.Uint16(query[4:]) != 1 {
		return nil, errors.New("not one question")
	}
	labels, end := []string{}, 12
	for end < len(query) && query[end] != 0 {
		length := int(query[end])
		if length > 63 || end+1+length >= len(query) {
			return nil, errors.New("bad name")
		}
		labels = append(labels, strings.ToLower(string(query[end+1:end+1+length])))
		end += 1 + length
	}
	end++
	if end+4 > len(query) {
		return nil, errors.New("no type")
	}
	asked := binary.BigEndian.Uint16(query[end:])
	name := strings.Join(labels, ".")
	z.mutex.Lock()
	found, known := z.addresses[strings.TrimSuffix(name, z.suffix)]
	z.mutex.Unlock()
	known = known && strings.HasSuffix(name, z.suffix)
	status := noError
	if !known {
		status = nameError
	}
	if asked != typeA || !known {
		found = nil
	}
	answer := append([]byte{}, query[:end+4]...)
	binary.BigEndian.PutUint16(answer[2:], answerBits|binary.BigEndian.Uint16(query[2:])&recursion|uint16(status))
	binary.BigEndian.PutUint16(answer[6:], uint16(len(found)))
	binary.BigEndian.PutUint16(answer[8:], 0)
	binary.BigEndian.PutUint16(answer[10:], 0)
	for _, ip := range found {
		record := make([]byte, 16)
		binary.BigEndian.PutUint16(record, compressedName)
		binary.BigEndian.PutUint16(record[2:], typeA)
		binary.BigEndian.PutUint16(record[4:], classIN)
		binary.BigEndian.PutUint32(record[6:], 5)
		binary.BigEndian.PutUint16(record[10:], 4)
		copy(record[12:], ip)
		answer = append(answer, record...)
	}
	return answer, nil
}
