// dmuonctl drain: finish the step in progress, then end the daemon with exit code 0.
#include <iostream>

#include "client/cli/admin_client.h"

namespace dmuon::cli {

void AddDrainCommand(CLI::App* app, Action* action) {
  auto address = std::make_shared<std::string>();
  CLI::App* command =
      app->add_subcommand("drain", "Let a running dmuond finish its step and leave with 0");
  AddAddressOption(command, address.get());
  command->callback([address, action] {
    *action = [address] {
      AdminClient(*address).Drain();
      std::cout << "draining: dmuond at " << *address << " finishes its step and leaves"
                << std::endl;
      return 0;
    };
  });
}

}  // namespace dmuon::cli
